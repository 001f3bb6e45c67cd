// Replacement: the "Replace" step of tokenizer.json, which is a normalizer and a decoder, and the
// patterns that it shares with "Split".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json/json_view.h"
#include "data/tokenizer/regex.h"

namespace zeroth::data {

// Returns the expression of `part.pattern`: {"String": "..."} or {"Regex": "..."}.
Regex parse_pattern(const JsonView& part);

// Returns the maximum length that a step may give a text of `size` bytes. A limit is needed as
// steps process each other's results.
size_t max_output_bytes(size_t size);

// Throws the Error "KIND: a text of SIZE bytes grows beyond ..." if `text` is longer than
// max_output_bytes.
void require_growth(std::string_view kind, size_t size, const std::string& text);

class Replacement {
 public:
  explicit Replacement(const JsonView& part);

  // Returns the text with every match replaced. May stop once the result is longer than
  // `max_bytes`.
  std::string run(std::string_view text, size_t max_bytes) const;

 private:
  std::string plain_;  // pattern, if it is a plain string
  std::optional<Regex> regex_;
  std::string content_;
};

}  // namespace zeroth::data
