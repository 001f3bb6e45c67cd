// Quoting of words for a POSIX shell, and splitting of a text written for one. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// Returns the word so that a shell reads exactly it: unchanged if that is safe, otherwise in single
// quotes.
std::string shell_quote(std::string_view word);

// Joins words by spaces, each quoted.
std::string shell_join(const std::vector<std::string>& words);

// Splits `text` as a POSIX shell groups it: blanks separate words, '...' holds anything, in "..." a
// backslash quotes $, `, ", \ and a newline, elsewhere any character. Nothing is expanded, and no
// other character is special: $HOME, *, ; and # stay as they are. Throws a UsageError that begins
// with `flag` if a quote is not closed.
std::vector<std::string> shell_split(std::string_view text, std::string_view flag);

}  // namespace zeroth::launcher
