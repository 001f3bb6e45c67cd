#include "launcher/transport/authenticated_frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/machine/random_bytes.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kProtocol = "zeroth 1";
constexpr size_t kLengthBytes = 4;
constexpr std::string_view kAgentProof = "zeroth agent's proof",
                           kLauncherProof = "zeroth launcher's proof",
                           kToAgentKey = "zeroth frames to the agent",
                           kToLauncherKey = "zeroth frames to the launcher",
                           kRankSecret = "zeroth secret of ranks";

template <size_t kBytes>
std::string big_endian(uint64_t number) {
  std::string bytes(kBytes, '\0');
  for (size_t i = kBytes; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number & 0xff);
  return bytes;
}

size_t read_length(std::string_view bytes) {
  size_t length = 0;
  for (const char byte : bytes.substr(0, kLengthBytes))
    length = length << 8 | static_cast<unsigned char>(byte);
  return length;
}

// Labels and nonces have fixed lengths for each use, so that no two uses authenticate the same
// text.
std::string make_proof(const HmacKey& secret, std::string_view role,
                       std::string_view launcher_nonce, std::string_view agent_nonce) {
  return std::string(digest_bytes(secret.digest(role, launcher_nonce, agent_nonce)));
}

HmacKey frame_key(const HmacKey& secret, std::string_view direction,
                  std::string_view launcher_nonce, std::string_view agent_nonce) {
  return HmacKey(make_proof(secret, direction, launcher_nonce, agent_nonce));
}

}  // namespace

std::string make_secret() {
  return random_hex(32);
}

std::string make_run_id() {
  return random_hex(8);
}

std::string derive_rank_secret(const HmacKey& secret, const RestartAttempt& attempt) {
  return to_hex(secret.digest(
      fmt::format("{} of run {}, round {}", kRankSecret, attempt.run, attempt.index)));
}

std::string MacWriter::make_frame(std::string_view payload) {
  ZEROTH_CHECK(payload.size() <= kMaxPayloadBytes, "a payload of {} bytes", payload.size());
  std::string frame = big_endian<kLengthBytes>(payload.size());
  frame += payload;
  const Sha256::Digest digest = key_.digest(big_endian<8>(sequence_++), frame);
  return frame += digest_bytes(digest);
}

void MacReader::feed(std::string_view bytes,
                     const std::function<void(std::string_view)>& on_payload) {
  buffer_ += bytes;
  std::string_view rest = buffer_;
  while (rest.size() >= kLengthBytes) {
    const size_t length = read_length(rest);
    if (length > kMaxPayloadBytes)
      throw Error("message of {} bytes exceeds the maximum of {}", length, kMaxPayloadBytes);
    const size_t signed_bytes = kLengthBytes + length;
    if (rest.size() < signed_bytes + kProofBytes) break;
    const Sha256::Digest digest =
        key_.digest(big_endian<8>(sequence_), rest.substr(0, signed_bytes));
    if (!constant_time_equal(digest_bytes(digest), rest.substr(signed_bytes, kProofBytes)))
      throw Error("message authentication failed: changed in transit, or from another connection");
    ++sequence_;
    const std::string_view payload = rest.substr(kLengthBytes, length);
    rest.remove_prefix(signed_bytes + kProofBytes);
    on_payload(payload);
  }
  buffer_.erase(0, buffer_.size() - rest.size());
}

LauncherHandshake::LauncherHandshake(const HmacKey& secret)
    : secret_(secret), greeting_(std::string(kProtocol) + random_bytes(kNonceBytes)) {}

std::optional<LauncherHandshake::Accepted> LauncherHandshake::accept(
    std::string_view answer) const {
  const std::string_view ours = std::string_view(greeting_).substr(kProtocol.size());
  const std::string_view theirs = answer.substr(0, kNonceBytes);
  if (!constant_time_equal(answer.substr(kNonceBytes),
                           make_proof(secret_, kAgentProof, ours, theirs)))
    return std::nullopt;
  return Accepted{make_proof(secret_, kLauncherProof, ours, theirs),
                  {MacWriter(frame_key(secret_, kToAgentKey, ours, theirs)),
                   MacReader(frame_key(secret_, kToLauncherKey, ours, theirs))}};
}

AgentHandshake::AgentHandshake(const HmacKey& secret, std::string_view greeting)
    : secret_(secret),
      launcher_nonce_(greeting.substr(std::min(kProtocol.size(), greeting.size()))),
      answer_(random_bytes(kNonceBytes)) {
  if (!greeting.starts_with(kProtocol) || launcher_nonce_.size() != kNonceBytes)
    throw Error("the peer is not a launcher, or is one of another version of Zeroth");
  answer_ += make_proof(secret_, kAgentProof, launcher_nonce_, answer_);
}

std::optional<MacPair> AgentHandshake::accept(std::string_view proof) const {
  const std::string_view ours = std::string_view(answer_).substr(0, kNonceBytes);
  if (!constant_time_equal(proof, make_proof(secret_, kLauncherProof, launcher_nonce_, ours)))
    return std::nullopt;
  return MacPair{MacWriter(frame_key(secret_, kToLauncherKey, launcher_nonce_, ours)),
                 MacReader(frame_key(secret_, kToAgentKey, launcher_nonce_, ours))};
}

}  // namespace zeroth::launcher
