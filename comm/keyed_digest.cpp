#include "comm/keyed_digest.h"

#include <c10/util/hash.h>

#include <charconv>

namespace zeroth::comm {
namespace {

constexpr size_t kBlock = 64;  // bytes that SHA-1 takes at a time

std::string digest_of(const std::string& text) {
  return c10::sha1(text).str();
}

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

std::string mixed(std::string key, unsigned char pad) {
  for (char& byte : key) byte = static_cast<char>(static_cast<unsigned char>(byte) ^ pad);
  return key;
}

}  // namespace

std::string keyed_digest(std::string_view secret, std::string_view text) {
  std::string key(secret);
  if (key.size() > kBlock) key = bytes_of(digest_of(key));
  key.resize(kBlock, '\0');
  const std::string inner = digest_of(mixed(key, 0x36).append(text));
  return digest_of(mixed(key, 0x5c) + bytes_of(inner));
}

bool same_digest(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return difference == 0;
}

}  // namespace zeroth::comm
