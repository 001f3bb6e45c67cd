#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text/units.h"

namespace zeroth {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t read_word(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         uint32_t{bytes[3]};
}

void write_word(uint8_t* bytes, uint32_t word) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(word >> (24 - 8 * i));
}

std::array<uint32_t, 64> schedule(const uint8_t* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) words[i] = read_word(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t early = words[i - 15], late = words[i - 2];
    const uint32_t s0 = std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3;
    const uint32_t s1 = std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10;
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  return words;
}

std::string padded_key(std::string_view key, uint8_t pad) {
  std::string block(key);
  if (block.size() > Sha256::kBlockBytes) block = digest_bytes(Sha256::of(key));
  block.resize(Sha256::kBlockBytes, '\0');
  for (char& byte : block) byte = static_cast<char>(static_cast<uint8_t>(byte) ^ pad);
  return block;
}

}  // namespace

void Sha256::process_block(const uint8_t* block) {
  const std::array<uint32_t, 64> words = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> sums{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < sums.size(); ++i) state_[i] += sums[i];
}

void Sha256::add(std::string_view bytes) {
  const auto* next = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    const size_t held = num_bytes_ % kBlockBytes;
    if (held == 0 && left >= kBlockBytes) {
      process_block(next);
      num_bytes_ += kBlockBytes, next += kBlockBytes, left -= kBlockBytes;
      continue;
    }
    const size_t count = std::min(left, kBlockBytes - held);
    std::memcpy(block_.data() + held, next, count);
    num_bytes_ += count, next += count, left -= count;
    if (held + count == kBlockBytes) process_block(block_.data());
  }
}

Sha256::Digest Sha256::finish() {
  const uint64_t num_bits = num_bytes_ * 8;
  const size_t held = num_bytes_ % kBlockBytes;
  std::array<uint8_t, kBlockBytes + 8> end{0x80};
  const size_t zeros_to = (held < 56 ? 56 : 120) - held;
  write_word(end.data() + zeros_to, static_cast<uint32_t>(num_bits >> 32));
  write_word(end.data() + zeros_to + 4, static_cast<uint32_t>(num_bits));
  add({reinterpret_cast<const char*>(end.data()), zeros_to + 8});
  Digest digest;
  for (size_t i = 0; i < state_.size(); ++i) write_word(digest.data() + 4 * i, state_[i]);
  return digest;
}

Sha256::Digest Sha256::of(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

HmacKey::HmacKey(std::string_view key) {
  inner_.add(padded_key(key, 0x36));
  outer_.add(padded_key(key, 0x5c));
}

Sha256::Digest HmacKey::finish(Sha256& inner) const {
  Sha256 outer = outer_;
  outer.add(digest_bytes(inner.finish()));
  return outer.finish();
}

std::string_view digest_bytes(const Sha256::Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string to_hex(const Sha256::Digest& digest) {
  return to_hex(digest_bytes(digest));
}

bool constant_time_equal(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i)
    difference |=
        static_cast<unsigned>(static_cast<uint8_t>(one[i]) ^ static_cast<uint8_t>(other[i]));
  return difference == 0;
}

}  // namespace zeroth
