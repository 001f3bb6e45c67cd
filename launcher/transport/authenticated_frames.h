// Mutual authentication and authenticated framing: launcher and agent prove to each other that they
// know the run's secret without sending it, then authenticate each frame with a MAC. Pure: no
// socket. Nothing is encrypted; without the secret no process can forge, change, repeat, reorder or
// omit a frame.
//
//   launcher: "zeroth 1", nonce            agent: nonce, proof            launcher: proof
//
// A proof is an HMAC over its sender's role and both nonces, so it can neither be replayed to its
// sender nor used in another connection. Each direction has a key of its own. The launcher computes
// and reveals nothing for a peer that has not proved its identity.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/restart_attempt.h"
#include "base/sha256.h"

namespace zeroth::launcher {

inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;
inline constexpr size_t kGreetingBytes = 8 + kNonceBytes;
inline constexpr size_t kAnswerBytes = kNonceBytes + kProofBytes;

// Returns a new random secret for a run: 64 hexadecimal digits.
std::string make_secret();
// Returns a new random id that all attempts of a run share: 16 hexadecimal digits.
std::string make_run_id();
// Returns the value of ZEROTH_SECRET for ranks. It does not reveal the run's secret, and differs
// between attempts, so that a rank that outlives its attempt cannot connect in the next one.
std::string derive_rank_secret(const HmacKey& secret, const RestartAttempt& attempt);

// MacWriter makes the frames of one direction: the payload's length (4 bytes, big-endian), the
// payload, and an HMAC over sequence number, length and payload.
class MacWriter {
 public:
  explicit MacWriter(const HmacKey& key) : key_(key) {}
  std::string make_frame(std::string_view payload);  // at most kMaxPayloadBytes

 private:
  HmacKey key_;
  uint64_t sequence_ = 0;
};

// MacReader verifies frames of one direction, which may arrive in pieces of any size. It holds one
// frame at most.
class MacReader {
 public:
  explicit MacReader(const HmacKey& key) : key_(key) {}
  // Passes on each complete payload, which is valid during the call only. Throws Error on the first
  // frame that is too long, not authenticated with the key, or out of sequence.
  void feed(std::string_view bytes, const std::function<void(std::string_view)>& on_payload);

 private:
  HmacKey key_;
  uint64_t sequence_ = 0;
  std::string buffer_;
};

// A program's arguments and environment must fit: Linux accepts 6 MiB of them.
inline constexpr size_t kMaxPayloadBytes = size_t{8} << 20;

struct MacPair {
  MacWriter writer;
  MacReader reader;
};

class LauncherHandshake {
 public:
  explicit LauncherHandshake(const HmacKey& secret);

  const std::string& greeting() const { return greeting_; }
  struct Accepted {
    std::string proof;  // to be sent
    MacPair macs;
  };
  // `answer` has kAnswerBytes. Returns empty if the peer does not know the secret.
  std::optional<Accepted> accept(std::string_view answer) const;

 private:
  HmacKey secret_;
  std::string greeting_;
};

class AgentHandshake {
 public:
  // `greeting` has kGreetingBytes. Throws Error if it does not belong to this protocol.
  AgentHandshake(const HmacKey& secret, std::string_view greeting);

  const std::string& answer() const { return answer_; }
  // `proof` has kProofBytes. Returns empty if the peer does not know the secret.
  std::optional<MacPair> accept(std::string_view proof) const;

 private:
  HmacKey secret_;
  std::string launcher_nonce_;
  std::string answer_;
};

}  // namespace zeroth::launcher
