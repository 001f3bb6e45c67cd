// Tokenizer: converts text to token ids and back, as `tokenizers` does for BPE: on bytes (GPT-2,
// Llama 3, Qwen, Phi, SmolLM, Falcon) or on characters (Llama 2, Mistral, Gemma, Phi-3). It
// rejects, by name, an unknown part of tokenizer.json that would change ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/regex.h"

namespace zeroth::data {

// TextTemplate is the ids around a full text, at most a thousand.
struct TextTemplate {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TextRange> offsets;  // of each id, in bytes

  // Returns of each id whether any of its bytes is in one of the ranges, which are in any order.
  std::vector<bool> tokens_in(std::vector<TextRange> ranges) const;
};

// A Tokenizer is immutable after load; `encode` and `decode` may be called from several threads.
// Copies share their parts.
class Tokenizer {
 public:
  // Reads tokenizer.json and the end-of-text token from the files beside it. Throws an Error that
  // names the file.
  static Tokenizer load(const std::filesystem::path& model_dir);

  // Encodes a text without the template: adds nothing before or after. Added tokens inside the text
  // become their ids. Throws an Error with the byte offset if the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;

  // The same with the bytes of the text that each token stands for. They are the offsets of
  // `tokenizers` without a post-processor, but in bytes, and wider where a normalizer replaces
  // several characters together: then each of what it puts there stands for all of them.
  Encoding encode_with_offsets(std::string_view text) const;

  // Returns the number of characters that `encode` has dropped so far, as they have no token;
  // `tokenizers` does the same. A tokenizer on bytes drops none, unless its alphabet is incomplete.
  int64_t num_dropped_chars() const;

  // Returns the text of all ids, special tokens included. Throws an Error for an id outside the
  // vocabulary.
  std::string decode(std::span<const int32_t> ids) const;

  // Returns a token as spelled in the vocabulary or the added tokens; empty if there is none.
  std::string_view id_to_token(int32_t id) const;

  // Returns the ids that the tokenizer's own template adds around a full text (BOS, EOS); both
  // sides may be empty.
  const TextTemplate& text_template() const;

  // Returns the `eos_token` of tokenizer_config.json or special_tokens_map.json, otherwise the
  // (first) `eos_token_id` of generation_config.json or config.json.
  std::optional<int32_t> end_of_text() const;

  // Returns end_of_text(), if it is known, and every `eos_token_id` of generation_config.json: the
  // tokens at which generation stops.
  const std::vector<int32_t>& end_tokens() const;

  // Returns whether an id is an added token that is special.
  bool is_special(int32_t id) const;

  // Returns the highest id + 1, added tokens included. A model's embedding may have more rows.
  int64_t vocab_size() const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  void encode(std::string_view text, std::vector<int32_t>& ids,
              std::vector<TextRange>* offsets) const;

  std::shared_ptr<const Parts> parts_;
};

// The parts of a tokenizer besides encoding: the template around a text, and the end of text.

// Parses a post-processor. Throws an Error that names an unsupported type, or the wrong key.
TextTemplate parse_text_template(const nlohmann::json& post_processor);

// Returns Tokenizer::end_of_text(). `token_to_id` returns the id of a token's text; a named token
// without an id is an Error.
std::optional<int32_t> find_end_of_text(
    const std::filesystem::path& model_dir,
    const std::function<std::optional<int32_t>(const std::string&)>& token_to_id);

// Returns `eos_token_id` of generation_config.json, otherwise of config.json: one or several.
std::vector<int32_t> read_end_token_ids(const std::filesystem::path& model_dir);

}  // namespace zeroth::data
