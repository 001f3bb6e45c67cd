// Byte alphabet of byte-level BPE: each byte is written as one printable character (a space as
// U+0120), so that any byte string is a text.
#pragma once

#include <string>
#include <string_view>

namespace zeroth::data {

// Appends the alphabet's characters, as UTF-8, for all bytes of the text.
void append_byte_level(std::string_view bytes, std::string& out);

// Returns the bytes that a token of the alphabet's characters represents. A token with any other
// character represents itself. The token must be valid UTF-8.
std::string decode_byte_level(std::string_view token);

}  // namespace zeroth::data
