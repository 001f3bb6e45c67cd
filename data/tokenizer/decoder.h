// Decoder: converts tokens to text, as tokenizer.json's `decoder` specifies. It is one step or a
// Sequence of them; each step maps a list of texts to another one, and the last list is joined:
//   ByteLevel     characters that stand for bytes become these bytes
//   ByteFallback  tokens such as <0x0A> become the byte that they name
//   Metaspace     the replacement, U+2581 by default, becomes a space
//   Replace       a pattern becomes its content
//   Strip         a character is removed from the start and the end of each text
//   Fuse          all texts become one
// A decoder has at most 100 steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json/json_view.h"

namespace zeroth::data {

class Decoder {
 public:
  // `decoder` may be null: the tokens are then joined by spaces. Throws an Error that names the
  // wrong key.
  explicit Decoder(const nlohmann::json& decoder);

  // Returns the text. Bytes that are not valid UTF-8 become U+FFFD. Throws an Error that names an
  // unsupported type, which the constructor accepts.
  std::string run(std::vector<std::string> tokens) const;

 private:
  using Tokens = std::vector<std::string>;
  // A Step gets the result of the previous one; the first step gets the tokens as the vocabulary
  // spells them.
  using Step = std::function<Tokens(Tokens)>;

  bool joined_by_spaces_;
  std::vector<Step> steps_;
};

}  // namespace zeroth::data
