// UTF-8: validation and access to characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

// Returns the byte offset of the first invalid sequence (surrogates and overlong forms included),
// if any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Returns the bytes as valid UTF-8: each maximal incomplete beginning of a character, and each
// other invalid byte, becomes U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

// Returns the text after its byte order mark; all of it if there is none.
std::string_view without_byte_order_mark(std::string_view text);

// Return, for valid UTF-8, the bytes of the character that starts with this byte, the character
// that starts at `at`, and the start of the one that ends at `end`.
size_t utf8_length(char first_byte);
char32_t char_at(std::string_view text, size_t at);
size_t previous_char(std::string_view text, size_t end);

// Appends a character as UTF-8.
void append_char(char32_t character, std::string& text);

}  // namespace zeroth::data
