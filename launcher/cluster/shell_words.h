// Words for a POSIX shell, and out of a text that is written as for one. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// The word so that a shell reads exactly it: as it is where that is safe, else in single quotes.
std::string shell_quote(std::string_view word);

// Words with a space between them, each quoted.
std::string shell_join(const std::vector<std::string>& words);

// `text` as a POSIX shell groups it: blanks part words, '...' holds anything, in "..." a backslash
// quotes $, `, ", \ and a line's end, elsewhere any character. Nothing is expanded, and no
// character but these means anything: $HOME, *, ; and # stay as they stand. Throws a UsageError
// that begins with `flag` where a quote has no end.
std::vector<std::string> shell_split(std::string_view text, std::string_view flag);

}  // namespace zeroth::launcher
