// UTF-8 checks and canonical composition.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

// Byte offset of the first place that is not UTF-8 (surrogates and overlong forms included), if
// any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Unicode normalisation form C of valid UTF-8.
std::string to_nfc(std::string_view text);

// Bytes of the character that starts with this byte of valid UTF-8.
size_t utf8_length(char first_byte);

}  // namespace zeroth::data
