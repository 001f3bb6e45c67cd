// UTF-8 and Unicode: validation, access to characters, and normal forms.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns the form by its name in tokenizer.json: "NFC", "NFKD"; nullopt for any other name.
std::optional<NormalForm> find_normal_form(std::string_view name);

// Convert valid UTF-8, as `tokenizers` does except for 16 characters newer than its tables that
// have a compatibility form (U+32FF, U+A7F2 to U+A7F4, U+107A5, U+1F16C, U+1FBF0 to U+1FBF9).
std::string to_normal_form(std::string_view text, NormalForm form);
std::string to_lower(std::string_view text);  // each character by itself

bool is_space(char32_t character);  // White_Space
bool is_word(char32_t character);   // letters, marks, digits, connectors, joiners

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
