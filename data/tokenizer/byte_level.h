// Byte alphabet of byte-level BPE: each byte is written as one printable character (a space as
// U+0120), so that any byte string is a text. All these characters are below kByteCharLimit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zeroth::data {

inline constexpr char32_t kByteCharLimit = 0x144;

// Return the character (as code point) that represents a byte, and back; -1 if the character
// represents none.
char32_t byte_to_char(uint8_t byte);
int char_to_byte(char32_t character);

// Appends the alphabet's characters, as UTF-8, for all bytes of the text.
void append_byte_level(std::string_view bytes, std::string& out);

// Returns the bytes that a token of the alphabet's characters represents. A token with any other
// character represents itself.
std::string decode_byte_level(std::string_view token);

// Returns the character of alphabet text at `at`, and moves `at` past it. The alphabet has only 1-
// and 2-byte characters; others are returned as kByteCharLimit.
char32_t next_byte_char(std::string_view text, size_t& at);

}  // namespace zeroth::data
