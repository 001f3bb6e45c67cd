#include "data/tokenizer/aligned_text.h"

#include "data/tokenizer/unicode.h"

namespace zeroth::data {

AlignedText AlignedText::part(size_t begin, size_t end) const {
  AlignedText result{.text = text.substr(begin, end - begin), .offset = offset + begin};
  if (!origins.empty()) result.origins = origins.subspan(begin, end - begin);
  return result;
}

TextRange AlignedText::origin(size_t begin, size_t end) const {
  if (origins.empty()) return {offset + begin, offset + end};
  return {origins[begin].begin, origins[end - 1].end};
}

void Rewriter::copy(size_t begin, size_t end) {
  text_ += input_.text.substr(begin, end - begin);
  if (!aligned_) return;
  for (size_t at = begin; at < end; ++at) origins_.push_back(input_.origin(at, at + 1));
}

void Rewriter::put(std::string_view text, size_t begin, size_t end) {
  text_ += text;
  if (aligned_) origins_.insert(origins_.end(), text.size(), origin(begin, end));
}

// What is inserted stands for the next character, or at the end for the last one, as in
// `tokenizers`.
TextRange Rewriter::origin(size_t begin, size_t end) const {
  const std::string_view text = input_.text;
  if (begin == end && begin < text.size()) end = begin + utf8_length(text[begin]);
  if (begin == end) begin = previous_char(text, begin);
  return input_.origin(begin, end);
}

}  // namespace zeroth::data
