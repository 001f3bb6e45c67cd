#include "base/sha256.h"

#include <sodium.h>

#include <utility>

#include "base/text/units.h"

// The functions of libsodium below always succeed, and need no sodium_init(), which chooses
// implementations of other functions and opens the source of random numbers.
namespace zeroth {
namespace {

static_assert(sizeof(Sha256::Digest) == crypto_hash_sha256_BYTES);
static_assert(sizeof(Sha256::Digest) == crypto_auth_hmacsha256_BYTES);

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Sha256::Sha256() : state_(std::make_unique<crypto_hash_sha256_state>()) {
  crypto_hash_sha256_init(state_.get());
}

Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  crypto_hash_sha256_update(state_.get(), data_of(bytes), bytes.size());
}

Sha256::Digest Sha256::finish() {
  Digest digest;
  crypto_hash_sha256_final(state_.get(), digest.data());
  return digest;
}

Sha256::Digest Sha256::of(std::string_view bytes) {
  Digest digest;
  crypto_hash_sha256(digest.data(), data_of(bytes), bytes.size());
  return digest;
}

HmacKey::HmacKey(std::string_view key) {
  auto state = std::make_shared<crypto_auth_hmacsha256_state>();
  crypto_auth_hmacsha256_init(state.get(), data_of(key), key.size());
  state_ = std::move(state);
}

Sha256::Digest HmacKey::digest_of(std::initializer_list<std::string_view> parts) const {
  crypto_auth_hmacsha256_state state = *state_;
  for (const std::string_view part : parts)
    crypto_auth_hmacsha256_update(&state, data_of(part), part.size());
  Sha256::Digest digest;
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

std::string_view digest_bytes(const Sha256::Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string to_hex(const Sha256::Digest& digest) {
  return to_hex(digest_bytes(digest));
}

bool constant_time_equal(std::string_view one, std::string_view other) {
  return one.size() == other.size() && sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace zeroth
