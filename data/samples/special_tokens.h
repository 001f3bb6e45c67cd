// SpecialTokens: adds begin and end tokens to a text, except those that the text has already, for
// example from a chat template.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::data {

class Tokenizer;

class SpecialTokens {
 public:
  // Keeps a reference to the tokenizer. `end_of_text` is the token that ends a text.
  // `allow_duplicates`: all tokens are added to every text, as in version 1 of the samples
  // (data/samples/dataset.h).
  SpecialTokens(const Tokenizer& tokenizer, int32_t end_of_text, bool allow_duplicates = false);

  // Returns `ids` with the tokens before and after them that are not there already: at their
  // beginning, or at the end of their last part, which begins at `last` and encodes `text`. Sets
  // `begin` to the number of tokens added before them.
  std::vector<int32_t> add_special_tokens(std::span<const int32_t> ids, size_t last,
                                          std::string_view text, size_t& begin);

  // Adds the numbers of texts that another one, of the same tokenizer, has seen.
  void add_counts(const SpecialTokens& other);

  // Returns a message with the number of texts that have their own; empty if none has.
  std::string own_special_tokens() const;

 private:
  bool has_begin(std::span<const int32_t> ids) const;
  bool has_end(std::span<const int32_t> ids, std::string_view text) const;

  const Tokenizer& tokenizer_;
  int32_t end_of_text_;
  std::string end_token_;
  std::vector<int32_t> prefix_, suffix_;
  bool allow_duplicates_;
  bool suffix_has_end_;  // the suffix includes the end of text
  int64_t num_texts_ = 0, num_with_begin_ = 0, num_with_end_ = 0;
};

}  // namespace zeroth::data
