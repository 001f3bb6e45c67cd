// The byte alphabet of byte-level BPE: each byte is written as one printable character (a space as
// U+0120), so that any byte string is a text. All these characters lie below kByteCharLimit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zeroth::data {

inline constexpr char32_t kByteCharLimit = 0x144;

// The character (as code point) that stands for a byte, and back; -1 if the character stands for
// none.
char32_t byte_to_char(uint8_t byte);
int char_to_byte(char32_t character);

// Appends the alphabet's characters, as UTF-8, for all bytes of the text.
void append_byte_level(std::string_view bytes, std::string& out);

// The bytes that a token of the alphabet's characters stands for. One with any other character
// stands for itself.
std::string decode_byte_level(std::string_view token);

// One character of alphabet text at `at`, which is moved past it. Only 1- and 2-byte characters
// exist there; others come back as kByteCharLimit.
char32_t next_byte_char(std::string_view text, size_t& at);

}  // namespace zeroth::data
