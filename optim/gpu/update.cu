// An update on a GPU. Each thread updates four elements, so that the update is as fast as the
// memory, or eight whose moments are codes.
#include "base/launch.cuh"
#include "optim/gpu/kernels.h"
#include "optim/gpu/lanes.cuh"
#include "optim/gpu/update_coded.h"
#include "optim/gpu/update_four.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int kBlock = 256, kWarp = 32;
static_assert(kWarp * kCodedElements == kCodeBlock);

template <typename Rule, typename Master, typename State>
__global__ void update_kernel(DeviceUpdate update) {
  const int64_t i = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kFour;
  if (i < update.count) update_four<Rule, Master, State>(update, i);
}

__device__ float largest_of_warp(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = larger(value, __shfl_xor_sync(0xffffffff, value, offset));
  }
  return value;
}

// Each warp updates a code block.
__global__ void update_coded_kernel(DeviceUpdate update) {
  const int64_t i = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kCodedElements;
  CodedElements elements;
  elements.update(update, i);
  Vec largest[kMaxStates];
  for (size_t k = 0; k < kMaxStates; ++k) largest[k] = largest_of_warp(elements.largest[k]);
  elements.encode(update, i, largest);
}

void launch_coded(const DeviceUpdate& update, cudaStream_t stream) {
  constexpr int64_t kPerBlock = int64_t{kBlock} * kCodedElements;
  const auto blocks = static_cast<unsigned>((update.count + kPerBlock - 1) / kPerBlock);
  launch_kernel(update_coded_kernel, blocks, kBlock, stream, update);
}

template <typename Rule>
void launch(const DeviceUpdate& update, cudaStream_t stream) {
  constexpr int64_t kPerBlock = int64_t{kBlock} * kFour;
  const auto blocks = static_cast<unsigned>((update.count + kPerBlock - 1) / kPerBlock);
  const auto run = !update.bf16_master  ? update_kernel<Rule, float, float>
                   : update.bf16_states ? update_kernel<Rule, Bf16, Bf16>
                                        : update_kernel<Rule, Bf16, float>;
  launch_kernel(run, blocks, kBlock, stream, update);
}

}  // namespace

void launch_update(const DeviceUpdate& update, cudaStream_t stream) {
  if (update.step.formula == kCodedAdam) return launch_coded(update, stream);
  using Launch = void (*)(const DeviceUpdate& update, cudaStream_t stream);
  constexpr Launch kLaunches[] = {launch<AdamFormula>, launch<LionFormula>, launch<AdagradFormula>,
                                  launch<SgdFormula>, launch<SgdMomentumFormula>};
  static_assert(sizeof(kLaunches) == kNumFormulas * sizeof(Launch), "one for each Formula");
  kLaunches[update.step.formula](update, stream);
}

}  // namespace zeroth::optim::kernel
