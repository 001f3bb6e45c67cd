#include "optim/host_lamb.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/lamb_kernels.h"
#include "optim/tensor_format.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;

// Elements of which a thread adds up the squares; threads get at least kGrain times as many.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 8;

const kernel::LambKernels& kernels_of(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return kernel::avx512::kLamb;
  if (level >= CpuLevel::kAvx2) return kernel::avx2::kLamb;
#endif
  return kernel::plain::kLamb;
}

// kFp32 of what is not there: no copy.
kernel::Format format_of(const Tensor& tensor) {
  return tensor.defined() ? kernel::format_of(tensor.scalar_type()) : kernel::kFp32;
}

// Of elements from `begin` on; null for what is not there.
template <typename T>
T* at(const Tensor& tensor, int64_t begin) {
  if (!tensor.defined()) return nullptr;
  auto* const bytes = static_cast<std::byte*>(tensor.mutable_data_ptr());
  return reinterpret_cast<T*>(bytes + begin * static_cast<int64_t>(tensor.element_size()));
}

// Calls work(block, arrays, count) for blocks of the part, on all threads.
template <typename Part, typename Work>
void for_each_block(const Part& part, const Work& work) {
  ZEROTH_CHECK(part.master.is_cpu(), "a tile on {}", part.master.device().str());
  const int64_t count = part.master.numel();
  parallel_for((count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock;
      work(block,
           kernel::LambArrays{at<float>(part.master, begin),
                              {at<float>(part.first, begin), at<float>(part.second, begin)},
                              at<void>(part.grad, begin),
                              at<void>(part.copy, begin)},
           std::min(kBlock, count - begin));
    }
  });
}

}  // namespace

HostLamb::HostLamb(const configs::OptimizerConfig& config, CpuLevel level)
    : Lamb(config), level_(level) {
  ZEROTH_CHECK(level <= processor_level(), "{} on a processor that has {}", name_of(level),
               name_of(processor_level()));
}

void HostLamb::sum_part(const Part& part, const kernel::Constants& constants,
                        const Tensor& sums) const {
  const auto run = kernels_of(level_).sum[format_of(part.grad)];
  std::vector<kernel::Squares> of_blocks(
      static_cast<size_t>((part.master.numel() + kBlock - 1) / kBlock));
  for_each_block(part, [&](int64_t block, const kernel::LambArrays& arrays, int64_t count) {
    of_blocks[static_cast<size_t>(block)] = run(constants, arrays, count);
  });
  double* const into = sums.mutable_data_ptr<double>();
  for (const auto& [weights, direction] : of_blocks) {
    into[0] += weights;
    into[1] += direction;
  }
}

void HostLamb::step_part(const Part& part, const kernel::Constants& constants,
                         const Tensor& ratio) const {
  const auto run = kernels_of(level_).step[format_of(part.copy)];
  kernel::Constants scaled = constants;
  scaled.minus_rate *= *ratio.const_data_ptr<float>();
  for_each_block(part, [&](int64_t, const kernel::LambArrays& arrays, int64_t count) {
    run(scaled, arrays, count);
  });
}

}  // namespace zeroth::optim
