// Normalizer: applies tokenizer.json's `normalizer` to a text before it is split into words.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json/json_view.h"
#include "data/tokenizer/aligned_text.h"
#include "data/tokenizer/regex.h"

namespace zeroth::data {

class Normalizer {
 public:
  // `normalizer` may be null. Throws an Error that names an unsupported type, or the wrong key.
  explicit Normalizer(const nlohmann::json& normalizer);

  // Returns the normalized text; `text` must be valid UTF-8. Throws an Error if the text exceeds
  // max_output_bytes().
  std::string run(std::string_view text) const;

  // Calls `sink` with it; the view is valid during the call. See Rewriter for `aligned`.
  using TextSink = std::function<void(const AlignedText&)>;
  void run(const AlignedText& text, bool aligned, const TextSink& sink) const;

  // Returns whether a step may remove the beginning of a text.
  bool strips_beginning() const { return strips_beginning_; }

 private:
  using Step = std::function<void(Rewriter&)>;

  Step make_step(const std::string& type, const JsonView& part);
  void run(size_t step, const AlignedText& text, size_t size, bool aligned,
           const TextSink& sink) const;

  std::vector<Step> steps_;
  bool strips_beginning_ = false;
};

// What normalizers, pre-tokenizers and decoders have in common. Replacement is the step "Replace"
// of tokenizer.json, which is a normalizer and a decoder; "Split" has the same patterns.

// Calls `add` with the type and the settings of a step, or of each step of a Sequence, which lists
// them under the key `list`. `steps`: those added so far; throws an Error for more than a hundred
// of a `kind`, as each runs inside or after the previous ones.
template <typename Steps, typename Add>
void for_each_step(const JsonView& part, const char* kind, const char* list, const Steps& steps,
                   const Add& add) {
  constexpr size_t kMaxSteps = 100;
  if (steps.size() >= kMaxSteps) {
    throw Error("{}: more than {} steps in a {}", part.path(), kMaxSteps, kind);
  }
  const std::string type = part.at("type").text();
  if (type != "Sequence") return add(type, part);
  const JsonView inner = part.at(list);
  for (size_t i = 0; i < inner.size(); ++i) for_each_step(inner.at(i), kind, list, steps, add);
}

// Returns the expression of `part.pattern`: {"String": "..."} or {"Regex": "..."}.
Regex parse_pattern(const JsonView& part);

// Returns the maximum length that a step may give a text of `size` bytes. A limit is needed as
// steps process each other's results.
size_t max_output_bytes(size_t size);

// Throws the Error "KIND: a text of SIZE bytes grows beyond ..." if `grown` exceeds
// max_output_bytes(). `size` is that before the first step.
void require_growth(std::string_view kind, size_t size, size_t grown);

class Replacement {
 public:
  explicit Replacement(const JsonView& part);

  // Returns the text with every match replaced. May stop once the result is longer than
  // `max_bytes`.
  std::string run(std::string_view text, size_t max_bytes) const;
  void rewrite(Rewriter& text, size_t max_bytes) const;

 private:
  std::string plain_;  // pattern, if it is a plain string
  std::optional<Regex> regex_;
  std::string content_;
};

}  // namespace zeroth::data
