#include "launcher/backends/shell_words.h"

#include <optional>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kSafe =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
constexpr std::string_view kBlanks = " \t\n";
// The characters that a backslash quotes within double quotes.
constexpr std::string_view kQuotable = "$`\"\\\n";

}  // namespace

std::string shell_quote(std::string_view word) {
  const bool safe = !word.empty() && word.find_first_not_of(kSafe) == std::string_view::npos &&
                    word.front() != '=';  // zsh expands =NAME to the path of a command
  if (safe) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + shell_quote(word);
  return joined;
}

std::vector<std::string> shell_split(std::string_view text, std::string_view flag) {
  const auto refuse = [&](std::string_view what) {
    throw UsageError("{} {}: unterminated {}", flag, shortened(text), what);
  };
  std::vector<std::string> words;
  std::string word;  // not complete yet
  bool has_word = false;
  std::optional<char> quote;  // not closed yet
  const auto add = [&](std::string_view part) {
    has_word = true;
    word += part;
  };
  const auto end_word = [&] {
    if (has_word) words.push_back(word);
    has_word = false;
    word.clear();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const std::string_view next = text.substr(at + 1, 1);
    const bool is_quotable = !next.empty() && kQuotable.find(next) != std::string_view::npos;
    if (!quote && kBlanks.find(c) != std::string_view::npos) {
      end_word();
    } else if (c == '\\' && (!quote || (quote == '"' && is_quotable))) {
      if (next.empty()) refuse("backslash");
      if (next != "\n") add(next);  // a quoted line break continues the line
      ++at;
    } else if (c == quote) {
      quote.reset();
    } else if (!quote && (c == '\'' || c == '"')) {
      quote = c;
      add("");
    } else {
      add(text.substr(at, 1));
    }
  }
  if (quote) refuse(quote == '"' ? "double quote" : "single quote");
  end_word();
  return words;
}

}  // namespace zeroth::launcher
