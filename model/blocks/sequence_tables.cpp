#include "model/blocks/sequence_tables.h"

#include <limits>

namespace zeroth::model {

using torch::Tensor;

Tensor WindowMask::mask(int64_t seq, const Tensor& like, const Tensor& first_keys) const {
  const torch::NoGradGuard no_grad;
  Tensor seen = torch::ones({seq, seq}, like.options().dtype(torch::kBool)).tril_();
  if (window_ > 0) seen.triu_(1 - window_);
  if (first_keys.defined()) {
    const Tensor keys = torch::arange(seq, like.options().dtype(torch::kLong));
    seen = keys.ge(first_keys.to(like.device()).unsqueeze(2)).logical_and_(seen);
  }
  return torch::zeros(seen.sizes(), like.options())
      .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

Tensor WindowMask::get(int64_t seq, const Tensor& like, const Tensor& first_keys) {
  const auto fits = [&](const Tensor& known) {
    return known.defined() && known.size(-1) == seq && known.scalar_type() == like.scalar_type() &&
           known.device() == like.device();
  };
  if (!first_keys.defined()) {
    if (!fits(cached_)) cached_ = mask(seq, like, {});
    return cached_;
  }
  const Tensor* const known = of_first_keys_.find(first_keys);
  if (known != nullptr && fits(*known)) return *known;
  return of_first_keys_.add(first_keys, mask(seq, like, first_keys));
}

const CuSeqlens& SampleOffsets::get(const Tensor& first_keys, torch::Device device) {
  const CuSeqlens* const known = of_first_keys_.find(first_keys);
  return known != nullptr ? *known : of_first_keys_.add(first_keys, cu_seqlens(first_keys, device));
}

Tensor DeviceFirstKeys::get(const Tensor& first_keys, torch::Device device) {
  if (!first_keys.defined() || first_keys.device() == device) return first_keys;
  const Tensor* const known = of_first_keys_.find(first_keys);
  return known != nullptr ? *known : of_first_keys_.add(first_keys, first_keys.to(device));
}

Tensor ChunkStarts::get(const MicroBatch& batch, int64_t chunk) {
  const int64_t rows = batch.tokens.size(0), seq = batch.tokens.size(1);
  const auto starts = [&](const Tensor& sample_starts) {
    const Tensor keys = torch::arange(seq, torch::kLong);
    return (keys - (keys - sample_starts).remainder(chunk)).contiguous();
  };
  if (!batch.first_keys.defined()) {
    if (!cached_.defined() || cached_.size(0) != rows || cached_.size(1) != seq)
      cached_ = starts(torch::zeros({rows, 1}, torch::kLong));
    return cached_;
  }
  const Tensor* const known = of_first_keys_.find(batch.first_keys);
  return known != nullptr ? *known : of_first_keys_.add(batch.first_keys, starts(batch.first_keys));
}

}  // namespace zeroth::model
