// One long stream of tokens cut into windows that overlap by one token: sample i = tokens[i*T ..
// i*T+T].
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/dataset.h"

namespace zeroth::data {

// Ids as they lie in memory, with what keeps that memory.
struct TokenStream {
  std::shared_ptr<const void> owner;
  std::variant<std::span<const int32_t>, std::span<const uint16_t>, std::span<const uint32_t>> ids;
  bool joined = false;  // several texts, one behind the other
};

// Both throw Error naming file, position and value for an id outside the vocabulary.
// .txt: the whole file encoded, nothing put before, between or after.
TokenStream read_text_tokens(const DatasetOptions& options);

// .bin: the ids themselves, mapped; read through once, a piece at a time.
TokenStream map_binary_tokens(const DatasetOptions& options);

// Ids that are known to be in the vocabulary: texts one behind the other, each with its end.
TokenStream joined_tokens(std::vector<int32_t> ids);

class TokenWindows : public Dataset {
 public:
  // Throws Error with both numbers if the stream is shorter than one window.
  TokenWindows(const DatasetOptions& options, TokenStream stream);

  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t) const override { return seq_len_; }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  std::string name_of(int64_t index) const override;
  DatasetStats stats() const override;

 private:
  std::string path_;
  TokenStream stream_;
  int64_t seq_len_;
  int64_t vocab_size_;
  int64_t size_ = 0;
};

}  // namespace zeroth::data
