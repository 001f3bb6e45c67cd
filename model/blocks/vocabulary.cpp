#include "model/blocks/vocabulary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::model {

Vocabulary::Vocabulary(int64_t size, TensorRanksPtr shared_by)
    : all(size), begin(0), own(size), most(size), ranks(std::move(shared_by)) {
  if (!ranks) return;
  most = (all + ranks->size() - 1) / ranks->size();
  begin = std::min(all, ranks->rank() * most);
  own = std::min(all - begin, most);
}

Split Vocabulary::split(const std::string& whole, int64_t width) const {
  return {whole, {all, width}, {begin, 0}, /*copies=*/1, most * width};
}

Vocabulary::Rows Vocabulary::rows_of(const torch::Tensor& tokens) const {
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [least, most_of_them] = at::aminmax(tokens);
    const int64_t low = least.item<int64_t>(), high = most_of_them.item<int64_t>();
    if (low < 0 || high >= all)
      throw Error("token {} is outside of the vocabulary of {}", low < 0 ? low : high, all);
  }
  const torch::Tensor rows = tokens - begin;
  const torch::Tensor here = rows.ge(0).logical_and_(rows.lt(own));
  return {rows.mul(here), here};
}

}  // namespace zeroth::model
