// Regular expressions as tokenizer.json writes them, with the meaning they have there (Oniguruma's,
// on Unicode text).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth::data {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// The same expression in PCRE2's dialect. Throws Error for what the two would read differently.
std::string to_pcre2(std::string_view oniguruma);

// An expression that matches just this text.
std::string escape_regex(std::string_view text);

// Immutable after construction; several threads may match with one.
class Regex {
 public:
  explicit Regex(const std::string& oniguruma);

  // The matches in a text (valid UTF-8, which must outlive this), from left to right.
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
