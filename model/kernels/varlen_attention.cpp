#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "model/kernels/attention_kernels.h"
#include "model/micro_batch.h"

namespace zeroth::model {

using torch::Tensor;

CuSeqlens cu_seqlens(const Tensor& first_keys, torch::Device device) {
  std::vector<int64_t> offsets = sample_begins(first_keys);
  offsets.push_back(first_keys.numel());
  CuSeqlens samples;
  for (size_t i = 1; i < offsets.size(); ++i)
    samples.max_length = std::max(samples.max_length, offsets[i] - offsets[i - 1]);
  samples.offsets = torch::tensor(offsets, torch::kInt32).to(device);
  return samples;
}

Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, const CuSeqlens& samples,
                        double scale, int64_t window) {
  ZEROTH_CHECK(q.size(3) % 8 == 0, "head size {} is not a multiple of 8", q.size(3));
  const std::optional<int64_t> window_left =
      window > 0 ? std::optional(window - 1) : std::nullopt;  // itself is not counted
  const Tensor y = std::get<0>(at::_flash_attention_forward(
      q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), samples.offsets, samples.offsets,
      samples.max_length, samples.max_length, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, scale, window_left, /*window_size_right=*/window > 0 ? 0 : -1));
  return y.view({q.size(0), q.size(1), q.size(2), v.size(3)});
}

}  // namespace zeroth::model
