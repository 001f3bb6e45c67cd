#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/utf8.h"

namespace zeroth::data {
namespace {

using Codes = std::vector<utf8proc_int32_t>;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<uint8_t>(byte) < 0x80; });
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

}  // namespace zeroth::data
