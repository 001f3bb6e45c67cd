#include "launcher/backends/shell_words.h"

#include <algorithm>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kSafe =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
constexpr std::string_view kBlanks = " \t\n";

class ShellSplitter {
 public:
  ShellSplitter(std::string_view text, std::string_view flag) : text_(text), flag_(flag) {}

  std::vector<std::string> split() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (kBlanks.find(c) != std::string_view::npos) {
        end_word();
      } else if (c == '\'') {
        read_single_quotes();
      } else if (c == '"') {
        read_double_quotes();
      } else if (c == '\\') {
        read_escaped();
      } else {
        add(c);
      }
    }
    end_word();
    return words_;
  }

 private:
  [[noreturn]] void throw_unterminated(std::string_view what) const {
    throw UsageError("{} {}: unterminated {}", flag_, shortened(text_), what);
  }

  void add(char c) {
    in_word_ = true;
    word_ += c;
  }

  void end_word() {
    if (in_word_) words_.push_back(word_);
    in_word_ = false;
    word_.clear();
  }

  void read_single_quotes() {
    const size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) throw_unterminated("single quote");
    in_word_ = true;
    word_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
  }

  void read_double_quotes() {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const std::string_view next = text_.substr(std::min(at_ + 1, text_.size()), 1);
      const bool escapes = text_[at_] == '\\' && !next.empty() &&
                           std::string_view("$`\"\\\n").find(next) != std::string_view::npos;
      if (escapes) ++at_;
      if (!(escapes && next == "\n")) add(text_[at_]);
    }
    if (at_ >= text_.size()) throw_unterminated("double quote");
  }

  void read_escaped() {
    if (++at_ >= text_.size()) throw_unterminated("backslash");
    if (text_[at_] != '\n') add(text_[at_]);
  }

  std::string_view text_;
  std::string_view flag_;
  size_t at_ = 0;
  bool in_word_ = false;
  std::string word_;
  std::vector<std::string> words_;
};

}  // namespace

std::string shell_quote(std::string_view word) {
  const bool safe = !word.empty() && word.find_first_not_of(kSafe) == std::string_view::npos &&
                    word.front() != '=';  // zsh expands =NAME to the path of a command
  if (safe) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + shell_quote(word);
  return joined;
}

std::vector<std::string> shell_split(std::string_view text, std::string_view flag) {
  return ShellSplitter(text, flag).split();
}

}  // namespace zeroth::launcher
