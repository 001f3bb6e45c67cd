// Added tokens: tokens in addition to the model's vocabulary (special ones and others), which are
// split off a text before BPE.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/regex.h"

namespace zeroth::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // structure rather than text: a begin, an end, a role's mark
  bool single_word = false;  // only if no letter, digit or underscore is adjacent
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched in the normalized text, not in the raw one
};

// Parses tokenizer.json's `added_tokens`, which may be null. Throws an Error that names the wrong
// key.
std::vector<AddedToken> parse_added_tokens(const nlohmann::json& added_tokens);

// AddedTokenSplitter finds a set of added tokens: from left to right, the longest at each position.
class AddedTokenSplitter {
 public:
  explicit AddedTokenSplitter(std::vector<AddedToken> tokens);

  // Calls `token` for each token found, with the range that it takes, and `text` for each non-empty
  // range between, in order.
  using TokenSink = std::function<void(int32_t, TextRange)>;
  using TextSink = std::function<void(TextRange)>;
  void split(std::string_view input, const TokenSink& token, const TextSink& text) const;

 private:
  const AddedToken* match_at(std::string_view input, size_t at) const;

  std::vector<AddedToken> tokens_;  // sorted by their bytes
  std::array<bool, 256> begins_{};  // by byte: whether a token begins with it
};

}  // namespace zeroth::data
