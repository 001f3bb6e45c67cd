#include "optim/lion.h"

#include <ATen/ops/copysign.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>

#include "base/machine/parallel.h"

namespace zeroth::optim {
namespace {

// Elements that pass through all operations of the formula while the cache holds them.
constexpr int64_t kBlockElements = 16384;
static_assert(kBlockElements % UpdateRule::kChunkAlignment == 0);

void apply_block(torch::Tensor master, const torch::Tensor& grad, torch::Tensor momentum,
                 const UpdateStep& step) {
  const torch::NoGradGuard no_grad;  // the threads of a parallel loop do not inherit it
  const auto [beta1, beta2] = step.betas;
  torch::Tensor direction = at::mul(momentum, beta1).add_(grad, (1 - beta1) * step.grad_factor);
  at::copysign_out(direction, at::full({}, step.lr, master.options()), direction);
  if (step.weight_decay != 0) master.mul_(1 - step.lr * step.weight_decay);
  master.sub_(direction);
  momentum.mul_(beta2).add_(grad, (1 - beta2) * step.grad_factor);
}

}  // namespace

std::span<const std::string_view> Lion::state_names() const {
  static constexpr std::array<std::string_view, 1> kNames = {"exp_avg"};
  return kNames;
}

void Lion::update(const Chunk& chunk, const UpdateStep& step) const {
  const int64_t numel = chunk.master.numel();
  const int64_t block_size = chunk.master.is_cpu() ? kBlockElements : std::max<int64_t>(numel, 1);
  parallel_for((numel + block_size - 1) / block_size, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i * block_size;
      const int64_t length = std::min(block_size, numel - begin);
      apply_block(chunk.master.narrow(0, begin, length), chunk.grad.narrow(0, begin, length),
                  chunk.states[0].narrow(0, begin, length), step);
    }
  });
}

}  // namespace zeroth::optim
