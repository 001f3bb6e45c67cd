// The tokens that stand beside the model's vocabulary (special ones and others): cut out of a text
// before BPE sees it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no letter, digit or underscore touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalised text, not in the raw one
};

// tokenizer.json's `added_tokens`, which may be null. Throws Error naming the key that is wrong.
std::vector<AddedToken> parse_added_tokens(const nlohmann::json& added_tokens);

// Finds a set of added tokens: from left to right, the longest at each place.
class AddedTokenSplitter {
 public:
  explicit AddedTokenSplitter(std::vector<AddedToken> tokens);

  // Calls `token` for each token found and `text` for each non-empty stretch between, in order.
  using TokenSink = std::function<void(int32_t)>;
  using TextSink = std::function<void(std::string_view)>;
  void split(std::string_view input, const TokenSink& token, const TextSink& text) const;

 private:
  const AddedToken* match_at(std::string_view input, size_t at) const;

  std::vector<AddedToken> tokens_;  // in the order of their bytes
  std::array<bool, 256> begins_{};  // whether a token begins with this byte
};

}  // namespace zeroth::data
