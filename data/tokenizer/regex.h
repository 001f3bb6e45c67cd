// Regular expressions of tokenizer.json, with their meaning there (Oniguruma's, on Unicode text).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// Returns the expression in PCRE2's dialect. Throws an Error for syntax whose meaning differs
// between the two.
std::string to_pcre2(std::string_view oniguruma);

// Returns an expression that matches exactly this text.
std::string escape_regex(std::string_view text);

// A Regex is immutable after construction; several threads may match with one.
class Regex {
 public:
  explicit Regex(const std::string& oniguruma);

  // Matches iterates over the matches in a text (valid UTF-8, which must outlive this), from left
  // to right.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    std::optional<TextRange> next();

   private:
    std::optional<TextRange> find(size_t from);

    const Regex& regex_;
    std::string_view text_;
    std::shared_ptr<void> match_data_;
    size_t from_ = 0;
    std::optional<size_t> last_end_;
  };

 private:
  std::string source_;
  std::shared_ptr<void> code_;
};

}  // namespace zeroth::data
