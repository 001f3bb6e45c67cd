#include "data/samples/token_windows.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/units.h"

namespace zeroth::data {

void throw_invalid_token_id(const std::string& path, int64_t position, int64_t id,
                            int64_t vocab_size, const std::string& hint) {
  throw Error("{}: token {} is {}, but the vocabulary has {} ids{}", path, position, id, vocab_size,
              hint);
}

TokenWindows::TokenWindows(const DatasetOptions& options, TokenStream stream)
    : path_(options.path.string()),
      stream_(std::move(stream)),
      seq_len_(options.seq_len),
      vocab_size_(options.vocab_size) {
  const auto count =
      std::visit([](const auto& ids) { return static_cast<int64_t>(ids.size()); }, stream_.ids);
  positions_ = std::max<int64_t>(count - 1, 0);
  const bool drops = options.version == 1;
  stream_.stats.lost_tokens = drops ? positions_ % seq_len_ : 0;
  positions_ -= stream_.stats.lost_tokens;
  size_ = std::min((positions_ + seq_len_ - 1) / seq_len_,
                   options.max_samples.value_or(std::numeric_limits<int64_t>::max()));
  positions_ = std::min(positions_, size_ * seq_len_);
  if (size_ == 0) {
    const int64_t needed = drops ? seq_len_ : 1;
    throw Error("{} has {}, a sample of {} needs {}{}", path_, pluralize(count, "token"),
                pluralize(needed, "position"), needed + 1,
                stream_.stats.chunked
                    ? "; --long-text cut makes a sample of each text, however short"
                    : "");
  }
}

int64_t TokenWindows::length(int64_t index) const {
  return std::min(seq_len_, positions_ - index * seq_len_);
}

void TokenWindows::fill(int64_t index, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const {
  ZEROTH_CHECK(index >= 0 && index < size_, "sample {} of {}", index, size_);
  const int64_t length = this->length(index);
  ZEROTH_CHECK(std::ssize(tokens) >= length && tokens.size() == targets.size(),
               "{} tokens, {} targets, length {}", tokens.size(), targets.size(), length);
  std::fill(tokens.begin() + length, tokens.end(), 0);
  std::fill(targets.begin() + length, targets.end(), kIgnoreIndex);
  const auto read = [&](const auto& ids) {
    const int64_t first = index * seq_len_;
    for (int64_t i = 0; i <= length; ++i) {
      const auto id = static_cast<int64_t>(ids[first + i]);
      // Ids are checked at opening, but the file may have changed since.
      if (id < 0 || id >= vocab_size_) throw_invalid_token_id(path_, first + i, id, vocab_size_);
      if (i < length) tokens[i] = id;
      if (i > 0) targets[i - 1] = id;
    }
  };
  std::visit(read, stream_.ids);
}

std::string TokenWindows::sample_name(int64_t index) const {
  return fmt::format("{} sample {}", path_, index);
}

DatasetStats TokenWindows::stats() const {
  DatasetStats stats = stream_.stats;
  stats.windows = true;
  stats.samples = size_;
  stats.tokens = stats.num_label_tokens = positions_;
  return stats;
}

}  // namespace zeroth::data
