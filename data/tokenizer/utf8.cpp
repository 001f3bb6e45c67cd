#include "data/tokenizer/utf8.h"

#include <utf8proc.h>

#include <array>

namespace zeroth::data {
namespace {

constexpr std::string_view kReplacement = "\ufffd";

uint8_t byte_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

bool is_ascii(char byte) {
  return static_cast<uint8_t>(byte) < 0x80;
}

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (byte_at(text, at) & 0xC0) == 0x80;
}

// Returns whether the byte at `at` can follow the first one: not if that makes an overlong form, a
// surrogate or a character above U+10FFFF.
bool follows_first(std::string_view text, size_t at) {
  if (!continues(text, at)) return false;
  const uint8_t first = byte_at(text, at - 1);
  const uint8_t second = byte_at(text, at);
  switch (first) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second < 0xA0;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second < 0x90;
    default:
      return first >= 0xC2 && first <= 0xF4;
  }
}

// Returns the bytes at an invalid position that begin one character, at least 1.
size_t broken_length(std::string_view text, size_t at) {
  if (!follows_first(text, at + 1)) return 1;
  const bool third = utf8_length(text[at]) == 4 && continues(text, at + 2);
  return third ? 3 : 2;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (is_ascii(text[at])) {
      ++at;
      continue;
    }
    utf8proc_int32_t code = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (length <= 0) return at;
    at += static_cast<size_t>(length);
  }
  return std::nullopt;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  while (const auto invalid = find_invalid_utf8(bytes)) {
    text += bytes.substr(0, *invalid);
    text += kReplacement;
    bytes.remove_prefix(*invalid + broken_length(bytes, *invalid));
  }
  text += bytes;
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\ufeff";
  return text.substr(text.starts_with(kMark) ? kMark.size() : 0);
}

size_t utf8_length(char first_byte) {
  const auto byte = static_cast<unsigned char>(first_byte);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

char32_t char_at(std::string_view text, size_t at) {
  const auto bits = [&](size_t i) { return static_cast<char32_t>(byte_at(text, at + i) & 0x3F); };
  const char32_t first = byte_at(text, at);
  switch (utf8_length(text[at])) {
    case 1:
      return first;
    case 2:
      return (first & 0x1F) << 6 | bits(1);
    case 3:
      return (first & 0x0F) << 12 | bits(1) << 6 | bits(2);
    default:
      return (first & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
  }
}

size_t previous_char(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && continues(text, end));
  return end;
}

void append_char(char32_t character, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

}  // namespace zeroth::data
