#include "data/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace zeroth::data {
namespace {

bool is_ascii(char byte) {
  return static_cast<unsigned char>(byte) < 0x80;
}

std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    ZEROTH_CHECK(length > 0, "byte {} of a text is not UTF-8", at);
    at += static_cast<size_t>(length);
    std::array<utf8proc_int32_t, 8> parts{};  // canonical decompositions have at most four
    const auto count = utf8proc_decompose_char(
        code, parts.data(), std::ssize(parts),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), nullptr);
    ZEROTH_CHECK(count > 0 && count <= std::ssize(parts), "U+{:04X} has {} parts", code, count);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  return codes;
}

// Canonical order of combining marks. utf8proc_map has its own, which takes quadratic time in a
// long row of them.
void sort_marks(std::vector<utf8proc_int32_t>& codes) {
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

std::string to_nfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  std::vector<utf8proc_int32_t> codes = decompose(text);
  sort_marks(codes);
  const auto count =
      utf8proc_normalize_utf32(codes.data(), std::ssize(codes),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string composed;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto size = utf8proc_encode_char(codes[static_cast<size_t>(i)], bytes.data());
    composed.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
  }
  return composed;
}

size_t utf8_length(char first_byte) {
  const auto byte = static_cast<unsigned char>(first_byte);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

}  // namespace zeroth::data
