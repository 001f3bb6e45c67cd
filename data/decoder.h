// Tokens back to text, as tokenizer.json's `decoder` says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json_view.h"

namespace zeroth::data {

class Decoder {
 public:
  // `decoder` may be null: the tokens are joined by spaces. Throws Error naming the key that is
  // wrong.
  explicit Decoder(const nlohmann::json& decoder);

  // Bytes that are no UTF-8 become U+FFFD. Throws Error naming a type that is not supported, which
  // stands in nobody's way before.
  std::string run(std::vector<std::string> tokens) const;

 private:
  using Tokens = std::vector<std::string>;
  using Step = std::function<Tokens(Tokens)>;

  void add(const JsonView& part);

  bool joined_by_spaces_;
  std::vector<Step> steps_;
};

}  // namespace zeroth::data
