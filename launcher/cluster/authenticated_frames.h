// Launcher and agent prove to each other that they know the run's secret, without telling it, and
// then seal what they send. Pure: no socket. Nothing is encrypted; nobody without the secret can
// forge, change, repeat, reorder or leave out a frame.
//
//   launcher: "zeroth 1", nonce            agent: nonce, proof            launcher: proof
//
// A proof is an HMAC over its maker's role and both nonces, so one can neither be played back to
// its maker nor used in another connection. Each direction has a key of its own. The launcher
// computes nothing and tells nothing to one who has not proved himself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "launcher/run/restart_policy.h"

namespace zeroth::launcher {

inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;
inline constexpr size_t kGreetingBytes = 8 + kNonceBytes;
inline constexpr size_t kAnswerBytes = kNonceBytes + kProofBytes;

// A run's secret: 64 hexadecimal digits, new each time.
std::string make_secret();
// What all rounds of a run have in common: 16 hexadecimal digits, new each time.
std::string make_run_id();
// What ranks get as ZEROTH_SECRET: it does not tell the run's secret, and each round has its own,
// so that one rank that outlives its round is a stranger in the next.
std::string derive_rank_secret(const HmacKey& secret, const RestartAttempt& attempt);

// Frames of one direction, as they are sent: the payload's length (4 bytes, big-endian), the
// payload, an HMAC over number, length and payload.
class MacWriter {
 public:
  explicit MacWriter(const HmacKey& key) : key_(key) {}
  std::string make_frame(std::string_view payload);  // at most kMaxPayloadBytes

 private:
  HmacKey key_;
  uint64_t sequence_ = 0;
};

// The same, as they come, in whatever pieces. Holds one frame at most.
class MacReader {
 public:
  explicit MacReader(const HmacKey& key) : key_(key) {}
  // Hands out each payload that is complete; it lives during the call only. Throws Error on the
  // first frame that is too long or not sealed with the key, or not the next one.
  void feed(std::string_view bytes, const std::function<void(std::string_view)>& on_payload);

 private:
  HmacKey key_;
  uint64_t sequence_ = 0;
  std::string buffer_;
};

// A program's arguments and environment must fit: Linux takes 6 MiB of them.
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
  // `answer`: kAnswerBytes. Empty: from one who does not know the secret.
  std::optional<Accepted> accept(std::string_view answer) const;

 private:
  HmacKey secret_;
  std::string greeting_;
};

class AgentHandshake {
 public:
  // `greeting`: kGreetingBytes. Throws Error if it is none of this protocol.
  AgentHandshake(const HmacKey& secret, std::string_view greeting);

  const std::string& answer() const { return answer_; }
  // `proof`: kProofBytes. Empty: from one who does not know the secret.
  std::optional<MacPair> accept(std::string_view proof) const;

 private:
  HmacKey secret_;
  std::string launcher_nonce_;
  std::string answer_;
};

}  // namespace zeroth::launcher
