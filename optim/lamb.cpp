#include "optim/lamb.h"

#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/machine/parallel.h"
#include "optim/cpu/cpu_update.h"
#include "optim/tensor_format.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

// Elements whose directions are in memory at a time.
constexpr int64_t kSliceElements = int64_t{1} << 22;

Tensor direction(const Tensor& master, const Tensor& first, const Tensor& second,
                 const kernel::Constants& c) {
  const Tensor divisor = c.eps_inside ? second.add(c.eps).sqrt_() : second.sqrt().add_(c.eps);
  return first.div(divisor).add_(master, c.decay);
}

Tensor sum_of_squares(const Tensor& x) {
  return x.to(torch::kDouble).square_().sum();
}

// Elements whose squares one thread sums up; threads get at least kGrain times as many.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;

// Returns the elements from `begin` on; null for an undefined tensor.
template <typename T>
T* data_at(const Tensor& tensor, int64_t begin) {
  if (!tensor.defined()) return nullptr;
  auto* const bytes = static_cast<std::byte*>(tensor.mutable_data_ptr());
  return reinterpret_cast<T*>(bytes + begin * static_cast<int64_t>(tensor.element_size()));
}

// Calls work(block, arrays, count) for blocks of the slice, on all threads.
template <typename Work>
void for_each_block(const UpdateRule::Chunk& slice, const Work& work) {
  ZEROTH_CHECK(slice.master.is_cpu(), "a chunk on {}", slice.master.device().str());
  const int64_t count = slice.master.numel();
  parallel_for((count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock;
      work(block,
           kernel::LambArrays{
               data_at<float>(slice.master, begin),
               {data_at<float>(slice.states[0], begin), data_at<float>(slice.states[1], begin)},
               data_at<void>(slice.grad, begin),
               data_at<void>(slice.copy, begin)},
           std::min(kBlock, count - begin));
    }
  });
}

// Calls visit(slice, constants, parameter) for each slice.
template <typename Visit>
void for_each_slice(const configs::OptimizerConfig& config, const UpdateRule::Chunk& chunk,
                    const UpdateStep& step, std::span<const ParamGroupRange> param_groups,
                    const Visit& visit) {
  const kernel::Constants decayed = kernel::make_constants(config, step);
  const kernel::Constants undecayed = kernel::make_constants(config, step.without_decay());
  for (const ParamGroupRange& group : param_groups) {
    for (int64_t begin = group.begin; begin < group.end; begin += kSliceElements) {
      const int64_t size = std::min(kSliceElements, group.end - begin);
      visit(chunk.narrow(begin, size), group.decays ? decayed : undecayed, group.parameter);
    }
  }
}

}  // namespace

void Lamb::sum(const Chunk& chunk, const UpdateStep& step,
               std::span<const ParamGroupRange> param_groups, const Tensor& sums) const {
  ZEROTH_CHECK(!chunk.ratios.defined(), "ratios before there are norms");
  check_arguments(chunk, step);
  for_each_slice(
      config(), chunk, step, param_groups,
      [&](const Chunk& slice, const Constants& c, int64_t row) { sum_slice(slice, c, sums[row]); });
}

Tensor Lamb::ratios(const Tensor& sums) const {
  const Tensor norms = sums.sqrt().to(torch::kFloat);
  const Tensor weights = norms.select(1, 0), directions = norms.select(1, 1);
  const Tensor ratios =
      weights.div(directions).clamp_max_(config().max_coeff).clamp_min_(config().min_coeff);
  return at::where(weights.ne(0).logical_and(directions.ne(0)), ratios, at::ones_like(ratios));
}

void Lamb::apply(const Chunk& chunk, const UpdateStep& step) const {
  const ParamGroupRange whole{0, chunk.master.numel()};
  apply_param_groups(chunk, step, {&whole, 1});
}

void Lamb::apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                              std::span<const ParamGroupRange> param_groups) const {
  ZEROTH_CHECK(chunk.ratios.defined(), "no ratios: Lamb's norms have not been summed");
  check_arguments(chunk, step);
  for_each_slice(config(), chunk, step, param_groups,
                 [&](const Chunk& slice, const Constants& c, int64_t row) {
                   step_slice(slice, c, chunk.ratios[row]);
                 });
}

void Lamb::sum_slice(const Chunk& slice, const Constants& c, const Tensor& sums) const {
  Tensor grad = slice.grad.to(torch::kFloat);
  if (c.factor != 1) grad = grad.mul(c.factor);
  if (c.divisor != 1) grad = grad.div(c.divisor);
  Tensor first = slice.states[0], second = slice.states[1];
  first.mul_(c.keep_first).add_(grad, c.add_first);
  second.mul_(c.keep_second).addcmul_(grad, grad, c.add_second);
  sums[0].add_(sum_of_squares(slice.master));
  sums[1].add_(sum_of_squares(direction(slice.master, first, second, c)));
}

void Lamb::step_slice(const Chunk& slice, const Constants& c, const Tensor& ratio) const {
  Tensor master = slice.master, copy = slice.copy;
  master.addcmul_(direction(master, slice.states[0], slice.states[1], c), ratio.mul(c.minus_rate));
  if (copy.defined()) copy.copy_(master);
}

CpuLamb::CpuLamb(const configs::OptimizerConfig& config, CpuIsa level)
    : Lamb(config), kernels_(select_kernels(level)) {}

void CpuLamb::sum_slice(const Chunk& slice, const kernel::Constants& constants,
                        const Tensor& sums) const {
  const auto run = kernels_.lamb_sum[kernel::to_format(slice.grad.scalar_type())];
  std::vector<kernel::Squares> block_squares(
      static_cast<size_t>((slice.master.numel() + kBlock - 1) / kBlock));
  for_each_block(slice, [&](int64_t block, const kernel::LambArrays& arrays, int64_t count) {
    block_squares[static_cast<size_t>(block)] = run(constants, arrays, count);
  });
  double* const into = sums.mutable_data_ptr<double>();
  for (const auto& [weights, direction] : block_squares) {
    into[0] += weights;
    into[1] += direction;
  }
}

void CpuLamb::step_slice(const Chunk& slice, const kernel::Constants& constants,
                         const Tensor& ratio) const {
  const kernel::Format format =
      slice.copy.defined() ? kernel::to_format(slice.copy.scalar_type()) : kernel::kFp32;
  const auto run = kernels_.lamb_step[format];
  kernel::Constants scaled = constants;
  scaled.minus_rate *= *ratio.const_data_ptr<float>();
  for_each_block(slice, [&](int64_t, const kernel::LambArrays& arrays, int64_t count) {
    run(scaled, arrays, count);
  });
}

}  // namespace zeroth::optim
