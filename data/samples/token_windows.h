// TokenWindows: one long stream of tokens cut into windows that overlap by one token: sample i =
// tokens[i*T .. i*T+T]; the last one holds the remaining tokens.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/samples/dataset.h"
#include "data/samples/token_store.h"

namespace zeroth::data {

// A TokenStream is ids in memory, with the owner of that memory.
struct TokenStream {
  std::shared_ptr<const void> owner;
  TokenIds ids;
  DatasetStats stats = {};  // those that do not follow from the ids
};

// Throws the Error for an id outside the vocabulary, at `position` of the file. `hint` ends it.
[[noreturn]] void throw_invalid_token_id(const std::string& path, int64_t position, int64_t id,
                                         int64_t vocab_size, const std::string& hint = "");

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

}  // namespace zeroth::data
