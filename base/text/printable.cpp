#include "base/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace zeroth {
namespace {

struct Character {
  size_t length = 0;  // 0: the bytes are not UTF-8
  char32_t code = 0;
};

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// Returns the character at the text's start.
Character first_character(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {1, lead};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  char32_t code = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return {};
    code = (code << 6) | (static_cast<uint8_t>(text[i]) & 0x3F);
  }
  constexpr char32_t kMinCodePoint[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kMinCodePoint[length] || code > 0x10FFFF || surrogate) return {};
  return {length, code};
}

bool is_hidden(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) ||  // C0, DEL, C1
         (code >= 0x200E && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

std::string escaped(char32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
  }
}

template <typename Keeps>
std::string escape(std::string_view text, const Keeps& keeps) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    if (character.length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[at++]));
      continue;
    }
    if (is_hidden(character.code) && !keeps(at)) {
      out += escaped(character.code);
    } else {
      out += text.substr(at, character.length);
    }
    at += character.length;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escape(text, [](size_t) { return false; });
}

std::string printable_message(std::string_view text) {
  return escape(text, [&](size_t at) {
    return text[at] == '\n' && (at + 1 == text.size() || text.substr(at + 1).starts_with("  "));
  });
}

std::string shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return printable(text);
  size_t end = max_bytes;
  for (size_t back = 1; back <= std::min<size_t>(max_bytes, 3); ++back) {
    const std::string_view last = text.substr(max_bytes - back);
    if (is_continuation(last[0])) continue;
    if (first_character(last).length > back) end = max_bytes - back;  // the cut would split it
    break;
  }
  return fmt::format("{}... ({} bytes)", printable(text.substr(0, end)), text.size());
}

std::string quotation(std::string_view text) {
  constexpr size_t kMaxShown = 300;
  return fmt::format("\"{}\"", shortened(text.substr(0, text.find('\n')), kMaxShown));
}

}  // namespace zeroth
