// Texts that know, through the steps of a tokenizer, which bytes of the original each of their
// bytes stands for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/regex.h"

namespace zeroth::data {

// AlignedText is a view of a text that steps have made of an original.
struct AlignedText {
  std::string_view text;
  size_t offset = 0;                        // of a part of the original: where it begins there
  std::span<const TextRange> origins = {};  // of any other text: of each byte, ascending

  AlignedText part(size_t begin, size_t end) const;

  // Returns the bytes of the original for which [begin, end) of the text, which is not empty,
  // stands.
  TextRange origin(size_t begin, size_t end) const;
};

// A Rewriter makes a text of another one, from its beginning to its end. It must outlive its
// result.
class Rewriter {
 public:
  // Without `aligned` the result has no origins, and takes less time.
  Rewriter(const AlignedText& input, bool aligned) : input_(input), aligned_(aligned) {}

  const AlignedText& input() const { return input_; }
  bool aligned() const { return aligned_; }

  // Appends [begin, end) of the input.
  void copy(size_t begin, size_t end);
  // Appends `text` in place of [begin, end) of the input, which has to have characters; it is
  // inserted if the range is empty.
  void put(std::string_view text, size_t begin, size_t end);

  AlignedText result() const { return {.text = text_, .origins = origins_}; }

 private:
  TextRange origin(size_t begin, size_t end) const;

  AlignedText input_;
  bool aligned_;
  std::string text_;
  std::vector<TextRange> origins_;
};

}  // namespace zeroth::data
