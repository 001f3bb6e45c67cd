#include "engine/step_sums.h"

#include <ATen/ATen.h>

#include <cmath>

namespace zeroth::engine {

torch::Tensor to_tensor(const torch::Tensor& loss, const torch::Tensor& squares,
                        const StepSums& own) {
  const StepCounts& counts = own.counts;
  torch::Tensor known = torch::tensor(
      {own.ends, own.unused, counts.tokens, counts.trained_tokens, counts.trained_micro_batches},
      torch::kDouble);
  if (!loss.is_cpu()) known = known.pin_memory().to(loss.device(), /*non_blocking=*/true);
  return at::cat({at::stack({loss.to(torch::kDouble), squares.to(torch::kDouble)}), known});
}

StepSums from_tensor(const torch::Tensor& sums) {
  const torch::Tensor host = sums.to(torch::kCPU);
  const auto* values = host.const_data_ptr<double>();
  const auto count = [&](int index) { return std::llround(values[index]); };
  return {.loss = values[0],
          .squares = values[1],
          .ends = count(2),
          .unused = count(3),
          .counts = {
              .tokens = count(4), .trained_tokens = count(5), .trained_micro_batches = count(6)}};
}

}  // namespace zeroth::engine
