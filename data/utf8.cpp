#include "data/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace zeroth::data {
namespace {

bool is_ascii(char byte) {
  return static_cast<unsigned char>(byte) < 0x80;
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
  utf8proc_uint8_t* composed = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (size < 0) throw Error("cannot normalise text to NFC: {}", utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(composed), static_cast<size_t>(size));
}

size_t utf8_length(char first_byte) {
  const auto byte = static_cast<unsigned char>(first_byte);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

}  // namespace zeroth::data
