#include "launcher/cluster/seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random_bytes.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kProtocol = "zeroth 1";
constexpr size_t kLengthBytes = 4;
constexpr std::string_view kOfAgent = "zeroth agent's proof",
                           kOfLauncher = "zeroth launcher's proof",
                           kToAgent = "zeroth frames to the agent",
                           kToLauncher = "zeroth frames to the launcher",
                           kOfRanks = "zeroth secret of ranks";

template <size_t kBytes>
std::string big_endian(uint64_t number) {
  std::string bytes(kBytes, '\0');
  for (size_t i = kBytes; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number & 0xff);
  return bytes;
}

size_t length_in(std::string_view bytes) {
  size_t length = 0;
  for (const char byte : bytes.substr(0, kLengthBytes))
    length = length << 8 | static_cast<unsigned char>(byte);
  return length;
}

// Labels and nonces are of fixed lengths for each use: no two uses share a text.
std::string proof_of(const HmacKey& secret, std::string_view role, std::string_view of_launcher,
                     std::string_view of_agent) {
  return std::string(bytes_of(secret.digest(role, of_launcher, of_agent)));
}

HmacKey frame_key(const HmacKey& secret, std::string_view direction, std::string_view of_launcher,
                  std::string_view of_agent) {
  return HmacKey(proof_of(secret, direction, of_launcher, of_agent));
}

}  // namespace

std::string make_secret() {
  Sha256::Digest bytes;
  const std::string random = random_bytes(bytes.size());
  std::copy(random.begin(), random.end(), bytes.begin());
  return hex_of(bytes);
}

std::string make_run_id() {
  return make_secret().substr(0, 16);
}

std::string derive_rank_secret(const HmacKey& secret, const Round& round) {
  return hex_of(
      secret.digest(fmt::format("{} of run {}, round {}", kOfRanks, round.run, round.number)));
}

std::string Sealer::seal(std::string_view payload) {
  ZEROTH_CHECK(payload.size() <= kMaxPayloadBytes, "a payload of {} bytes", payload.size());
  std::string frame = big_endian<kLengthBytes>(payload.size());
  frame += payload;
  const Sha256::Digest digest = key_.digest(big_endian<8>(number_++), frame);
  return frame += bytes_of(digest);
}

void Opener::feed(std::string_view bytes, const std::function<void(std::string_view)>& take) {
  held_ += bytes;
  std::string_view rest = held_;
  while (rest.size() >= kLengthBytes) {
    const size_t length = length_in(rest);
    if (length > kMaxPayloadBytes)
      throw Error("a message of {} bytes, where {} are the most", length, kMaxPayloadBytes);
    const size_t sealed = kLengthBytes + length;
    if (rest.size() < sealed + kProofBytes) break;
    const Sha256::Digest digest = key_.digest(big_endian<8>(number_), rest.substr(0, sealed));
    if (!same_secret(bytes_of(digest), rest.substr(sealed, kProofBytes)))
      throw Error("a message that was changed on its way, or is not of this connection");
    ++number_;
    const std::string_view payload = rest.substr(kLengthBytes, length);
    rest.remove_prefix(sealed + kProofBytes);
    take(payload);
  }
  held_.erase(0, held_.size() - rest.size());
}

LauncherHandshake::LauncherHandshake(const HmacKey& secret)
    : secret_(secret), greeting_(std::string(kProtocol) + random_bytes(kNonceBytes)) {}

std::optional<LauncherHandshake::Accepted> LauncherHandshake::accept(
    std::string_view answer) const {
  const std::string_view ours = std::string_view(greeting_).substr(kProtocol.size());
  const std::string_view theirs = answer.substr(0, kNonceBytes);
  if (!same_secret(answer.substr(kNonceBytes), proof_of(secret_, kOfAgent, ours, theirs)))
    return std::nullopt;
  return Accepted{proof_of(secret_, kOfLauncher, ours, theirs),
                  {Sealer(frame_key(secret_, kToAgent, ours, theirs)),
                   Opener(frame_key(secret_, kToLauncher, ours, theirs))}};
}

AgentHandshake::AgentHandshake(const HmacKey& secret, std::string_view greeting)
    : secret_(secret),
      launcher_nonce_(greeting.substr(std::min(kProtocol.size(), greeting.size()))),
      answer_(random_bytes(kNonceBytes)) {
  if (!greeting.starts_with(kProtocol) || launcher_nonce_.size() != kNonceBytes)
    throw Error("what answers there is no launcher, or one of another version of Zeroth");
  answer_ += proof_of(secret_, kOfAgent, launcher_nonce_, answer_);
}

std::optional<Seals> AgentHandshake::accept(std::string_view proof) const {
  const std::string_view ours = std::string_view(answer_).substr(0, kNonceBytes);
  if (!same_secret(proof, proof_of(secret_, kOfLauncher, launcher_nonce_, ours)))
    return std::nullopt;
  return Seals{Sealer(frame_key(secret_, kToLauncher, launcher_nonce_, ours)),
               Opener(frame_key(secret_, kToAgent, launcher_nonce_, ours))};
}

}  // namespace zeroth::launcher
