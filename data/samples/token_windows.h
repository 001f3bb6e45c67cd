// TokenWindows: one long stream of tokens cut into windows that overlap by one token: sample i =
// tokens[i*T .. i*T+T]; the last one holds the remaining tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>

#include "data/samples/dataset.h"
#include "data/samples/record_reader.h"

namespace zeroth::data {

// A TokenStream is ids in memory, with the owner of that memory.
struct TokenStream {
  std::shared_ptr<const void> owner;
  std::variant<std::span<const int32_t>, std::span<const uint16_t>, std::span<const uint32_t>> ids;
  DatasetStats stats = {};  // known statistics of records whose texts are chunked
};

// Throws the Error for an id outside the vocabulary, at `position` of the file. `hint` ends it.
[[noreturn]] void throw_invalid_token_id(const std::string& path, int64_t position, int64_t id,
                                         int64_t vocab_size, const std::string& hint = "");

// Reads a .txt file: encodes the full file, without special tokens. Throws an Error for an id
// outside the vocabulary.
TokenStream read_text_tokens(const DatasetOptions& options);

// Returns the stream of chunked texts, one after the other, each with its end. The ids must be in
// the vocabulary.
TokenStream chunked_tokens(EncodedRecords encoded);

class TokenWindows : public Dataset {
 public:
  // Throws an Error for a stream of less than two tokens, or of less than one window in version 1.
  TokenWindows(const DatasetOptions& options, TokenStream stream);

  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override;
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  std::string sample_name(int64_t index) const override;
  DatasetStats stats() const override;

 private:
  std::string path_;
  TokenStream stream_;
  int64_t seq_len_;
  int64_t vocab_size_;
  int64_t positions_ = 0;  // of all samples
  int64_t size_ = 0;
};

// Maps a .bin file of token ids; reads it once, chunk by chunk, to check it. The width of the ids
// comes from Megatron's index beside the file, or from DatasetOptions::token_type, or follows from
// the vocabulary. Throws an Error for a file that appears to have ids of another width or byte
// order, a header or text, unless its index or token_type states the format; and for an id outside
// the vocabulary, with file, position and value.
TokenStream map_binary_tokens(const DatasetOptions& options);

// Reads the index of Megatron's token files (indexed_dataset.py), NAME.idx beside NAME.bin.
// Returns the width of the ids of `tokens`, a .bin file of `bytes` bytes, from the index beside it;
// nullopt if there is none. Throws an Error that names the index if it belongs to another file, or
// if the type of the ids is not supported.
std::optional<TokenType> megatron_token_type(const std::filesystem::path& tokens, int64_t bytes);

}  // namespace zeroth::data
