// Characters and their normal forms as Unicode defines them.
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

}  // namespace zeroth::data
