// "Replace" of tokenizer.json, which is a normalizer and a decoder, and the patterns it shares with
// "Split".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_view.h"
#include "data/regex.h"

namespace zeroth::data {

// What `part.pattern` matches: {"String": "..."} or {"Regex": "..."}.
Regex parse_pattern(const JsonView& part);

// How long a step may make a text of `size` bytes: nobody needs more, and steps work on each
// other's results.
size_t max_output_bytes(size_t size);

// Throws Error "KIND: a text of SIZE bytes grows beyond ..." if `text` is longer than
// max_output_bytes.
void require_growth(std::string_view kind, size_t size, const std::string& text);

class Replacement {
 public:
  explicit Replacement(const JsonView& part);

  // The text with every match replaced. It may stop once the result is longer than `max_bytes`
  // bytes.
  std::string run(std::string_view text, size_t max_bytes) const;

 private:
  std::string plain_;  // what is looked for when it is no expression
  std::optional<Regex> regex_;
  std::string content_;
};

}  // namespace zeroth::data
