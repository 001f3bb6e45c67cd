#include "optim/cpu/cpu_lamb.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/machine/parallel.h"
#include "optim/cpu/lamb_kernels.h"
#include "optim/tensor_format.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

// Elements whose squares one thread sums up; threads get at least kGrain times as many.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;

const kernel::LambKernels& select_kernels(CpuIsa level) {
#if defined(__x86_64__)
  if (level >= CpuIsa::kAvx512) return kernel::avx512::kLamb;
  if (level >= CpuIsa::kAvx2) return kernel::avx2::kLamb;
#endif
  return kernel::plain::kLamb;
}

// Returns the tensor's format; kFp32 for an undefined one, which means no copy.
kernel::Format to_format(const Tensor& tensor) {
  return tensor.defined() ? kernel::to_format(tensor.scalar_type()) : kernel::kFp32;
}

// Returns the elements from `begin` on; null for an undefined tensor.
template <typename T>
T* data_at(const Tensor& tensor, int64_t begin) {
  if (!tensor.defined()) return nullptr;
  auto* const bytes = static_cast<std::byte*>(tensor.mutable_data_ptr());
  return reinterpret_cast<T*>(bytes + begin * static_cast<int64_t>(tensor.element_size()));
}

// Calls work(block, arrays, count) for blocks of the slice, on all threads.
template <typename LambSlice, typename Work>
void for_each_block(const LambSlice& slice, const Work& work) {
  ZEROTH_CHECK(slice.master.is_cpu(), "a chunk on {}", slice.master.device().str());
  const int64_t count = slice.master.numel();
  parallel_for((count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock;
      work(block,
           kernel::LambArrays{
               data_at<float>(slice.master, begin),
               {data_at<float>(slice.first, begin), data_at<float>(slice.second, begin)},
               data_at<void>(slice.grad, begin),
               data_at<void>(slice.copy, begin)},
           std::min(kBlock, count - begin));
    }
  });
}

}  // namespace

CpuLamb::CpuLamb(const configs::OptimizerConfig& config, CpuIsa level)
    : Lamb(config), level_(level) {
  ZEROTH_CHECK(level <= detected_cpu_isa(), "{} on a processor that has {}", to_string(level),
               to_string(detected_cpu_isa()));
}

void CpuLamb::sum_slice(const LambSlice& slice, const kernel::Constants& constants,
                        const Tensor& sums) const {
  const auto run = select_kernels(level_).sum[to_format(slice.grad)];
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

void CpuLamb::step_slice(const LambSlice& slice, const kernel::Constants& constants,
                         const Tensor& ratio) const {
  const auto run = select_kernels(level_).step[to_format(slice.copy)];
  kernel::Constants scaled = constants;
  scaled.minus_rate *= *ratio.const_data_ptr<float>();
  for_each_block(slice, [&](int64_t, const kernel::LambArrays& arrays, int64_t count) {
    run(scaled, arrays, count);
  });
}

}  // namespace zeroth::optim
