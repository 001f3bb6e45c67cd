// Text to token ids and back, as `tokenizers` does it for BPE: on bytes (GPT-2, Llama 3, Qwen, Phi,
// SmolLM, Falcon) or on characters (Llama 2, Mistral, Gemma, Phi-3). A part of tokenizer.json that
// would change ids and is not known here is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::data {

// Immutable after load; `encode` and `decode` may be called from several threads.
class Tokenizer {
 public:
  // Reads tokenizer.json and the end-of-text token from the files beside it. Throws Error naming
  // the file.
  static Tokenizer load(const std::filesystem::path& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Without the template: nothing is put before or after. Added tokens inside the text become their
  // ids. Throws Error with the byte offset if the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;

  // Characters that `encode` has left out until now, for want of a token for them, as `tokenizers`
  // does. No tokenizer on bytes has any, unless its alphabet is incomplete.
  int64_t num_dropped_chars() const;

  // The text of all ids, special tokens included. Throws Error for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids) const;

  // A token as the vocabulary or the added tokens spell it; empty where there is none.
  std::string_view id_to_token(int32_t id) const;

  // What the tokenizer's own template puts around a whole text (BOS, EOS); both may be empty.
  const std::vector<int32_t>& prefix() const;
  const std::vector<int32_t>& suffix() const;

  // The `eos_token` of tokenizer_config.json or special_tokens_map.json, else the (first)
  // `eos_token_id` of generation_config.json or config.json.
  std::optional<int32_t> end_of_text() const;

  // Highest id + 1, added tokens included. A model's embedding may have more rows.
  int64_t vocab_size() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace zeroth::data
