// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) of libsodium, for integrity and authentication.
// base/hash.h and base/files/crc32c.h are faster where neither is needed.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

struct crypto_auth_hmacsha256_state;
struct crypto_hash_sha256_state;

namespace zeroth {

// A Sha256 computes one digest incrementally.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256();
  ~Sha256();

  void add(std::string_view bytes);
  Digest finish();  // once, as the last call

  static Digest of(std::string_view bytes);

 private:
  std::unique_ptr<crypto_hash_sha256_state> state_;
};

// An HmacKey is a key for HMAC-SHA-256, mixed into the hash state once for all messages.
class HmacKey {
 public:
  explicit HmacKey(std::string_view key);

  // Returns the HMAC of the concatenation of all parts. A caller with several parts must ensure
  // that their boundaries are unambiguous.
  template <typename... Parts>
  Sha256::Digest digest(const Parts&... parts) const {
    return digest_of({parts...});
  }

 private:
  Sha256::Digest digest_of(std::initializer_list<std::string_view> parts) const;

  std::shared_ptr<const crypto_auth_hmacsha256_state> state_;  // shared by copies of the key
};

// Returns the bytes of a digest, or its 64 hexadecimal digits.
std::string_view digest_bytes(const Sha256::Digest& digest);
std::string to_hex(const Sha256::Digest& digest);

// Returns whether two texts are equal, in a time that does not depend on where they differ.
bool constant_time_equal(std::string_view one, std::string_view other);

}  // namespace zeroth
