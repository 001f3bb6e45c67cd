#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace zeroth::data {
namespace {

using Codes = std::vector<utf8proc_int32_t>;

bool is_ascii(char byte) {
  return static_cast<uint8_t>(byte) < 0x80;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return is_ascii(byte); });
}

Codes decompose(std::string_view text, bool compatible) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  Codes codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const auto code = static_cast<utf8proc_int32_t>(char_at(text, at));
    std::array<utf8proc_int32_t, 18> parts{};  // the maximum, of U+FDFA
    const auto count = utf8proc_decompose_char(code, parts.data(), std::ssize(parts),
                                               static_cast<utf8proc_option_t>(options), nullptr);
    ZEROTH_CHECK(count > 0 && count <= std::ssize(parts), "U+{:04X} has {} parts", code, count);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  return codes;
}

// Sorts combining marks canonically. utf8proc_map does so too, but in quadratic time for a long
// sequence of them.
void sort_marks(Codes& codes) {
  const auto mark_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (auto at = codes.begin(); at != codes.end();) {
    const auto begin = std::find_if(at, codes.end(), mark_class);
    at = std::find_if_not(begin, codes.end(), mark_class);
    std::stable_sort(begin, at, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
  }
}

void compose(Codes& codes) {
  const auto count =
      utf8proc_normalize_utf32(codes.data(), std::ssize(codes),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  codes.resize(static_cast<size_t>(count));
}

// Returns whether a character is in Other_Alphabetic beyond letters and marks: circled and squared
// letters.
bool is_enclosed_letter(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

constexpr std::string_view kReplacement = "\ufffd";

uint8_t byte_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
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

std::optional<NormalForm> find_normal_form(std::string_view name) {
  if (name == "NFC") return NormalForm::kNfc;
  if (name == "NFD") return NormalForm::kNfd;
  if (name == "NFKC") return NormalForm::kNfkc;
  if (name == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  Codes codes = decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  sort_marks(codes);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose(codes);
  std::string normal;
  normal.reserve(text.size());
  for (const utf8proc_int32_t code : codes) append_char(static_cast<char32_t>(code), normal);
  return normal;
}

std::string to_lower(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t character = char_at(text, at);
    if (character == 0x130) {  // the only one that becomes two
      lower += "i\u0307";
    } else {
      const auto code = utf8proc_tolower(static_cast<utf8proc_int32_t>(character));
      append_char(static_cast<char32_t>(code), lower);
    }
  }
  return lower;
}

bool is_space(char32_t character) {
  if ((character >= 0x09 && character <= 0x0D) || character == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return character == 0x200C || character == 0x200D || is_enclosed_letter(character);
  }
}

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
