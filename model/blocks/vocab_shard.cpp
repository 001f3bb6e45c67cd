#include "model/blocks/vocab_shard.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::model {

VocabShard::VocabShard(int64_t size, TensorParallelPtr tensor_parallel)
    : full_size(size),
      begin(0),
      local_size(size),
      max_local_size(size),
      tp(std::move(tensor_parallel)) {
  if (!tp) return;
  max_local_size = (full_size + tp->size() - 1) / tp->size();
  begin = std::min(full_size, tp->rank() * max_local_size);
  local_size = std::min(full_size - begin, max_local_size);
}

Split VocabShard::split(const std::string& full_name, int64_t width) const {
  return {full_name, {full_size, width}, {begin, 0}, /*num_replicas=*/1, max_local_size * width};
}

VocabShard::LocalRows VocabShard::local_rows(const torch::Tensor& tokens) const {
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [smallest_token, largest_token] = at::aminmax(tokens);
    const int64_t low = smallest_token.item<int64_t>(), high = largest_token.item<int64_t>();
    if (low < 0 || high >= full_size)
      throw Error("token {} is outside of the vocabulary of {}", low < 0 ? low : high, full_size);
  }
  const torch::Tensor rows = tokens - begin;
  const torch::Tensor is_local = rows.ge(0).logical_and_(rows.lt(local_size));
  return {rows.mul(is_local), is_local};
}

}  // namespace zeroth::model
