// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for integrity and authentication. base/hash.h
// and base/files/crc32c.h are faster where neither is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeroth {

// A Sha256 computes one digest incrementally.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;
  static constexpr size_t kBlockBytes = 64;

  void add(std::string_view bytes);
  Digest finish();  // once, as the last call

  static Digest of(std::string_view bytes);

 private:
  void process_block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> block_{};
  uint64_t num_bytes_ = 0;
};

// An HmacKey is a key for HMAC-SHA-256, mixed into the hash state once for all messages.
class HmacKey {
 public:
  explicit HmacKey(std::string_view key);

  // Returns the HMAC of the concatenation of all parts. A caller with several parts must ensure
  // that their boundaries are unambiguous.
  template <typename... Parts>
  Sha256::Digest digest(const Parts&... parts) const {
    Sha256 inner = inner_;
    (inner.add(parts), ...);
    return finish(inner);
  }

 private:
  Sha256::Digest finish(Sha256& inner) const;

  Sha256 inner_;
  Sha256 outer_;
};

// Returns the bytes of a digest, or its 64 hexadecimal digits.
std::string_view digest_bytes(const Sha256::Digest& digest);
std::string to_hex(const Sha256::Digest& digest);

// Returns whether two texts are equal, in a time that does not depend on where they differ.
bool constant_time_equal(std::string_view one, std::string_view other);

}  // namespace zeroth
