// Hashes of texts and numbers. They must never change and are the same on every machine, because
// random draws depend on them.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeroth {

// Returns the FNV-1a hash, continued by one word or over the bytes of a text.
constexpr uint64_t fnv1a(uint64_t hash, uint64_t word) {
  return (hash ^ word) * 0x100000001b3;
}
constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = fnv1a(hash, static_cast<unsigned char>(letter));
  return hash;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). Consecutive
// states differ by kGolden, and mix64() maps each one to output that looks random.
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace zeroth
