// UTF-8: what is valid, and its characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

// Byte offset of the first place that is not UTF-8 (surrogates and overlong forms included), if
// any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// The same bytes as UTF-8: each longest beginning of a character that is not finished, and each
// other byte that has no place, becomes U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

// The text after its byte order mark; all of it where it has none.
std::string_view without_byte_order_mark(std::string_view text);

// Of valid UTF-8: bytes of the character that starts with this byte, the character that starts at
// `at`, and the start of the one that ends at `end`.
size_t utf8_length(char first_byte);
char32_t char_at(std::string_view text, size_t at);
size_t previous_char(std::string_view text, size_t end);

// Appends a character.
void append_char(char32_t character, std::string& text);

}  // namespace zeroth::data
