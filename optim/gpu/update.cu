// An update on a GPU. Each thread updates four elements, so that the update is as fast as the
// memory.
#include "base/launch.cuh"
#include "optim/gpu/kernels.h"
#include "optim/gpu/lanes.cuh"
#include "optim/gpu/update_four.h"

namespace zeroth::optim::kernel {
namespace {

constexpr int kBlock = 256;

template <typename Rule, typename Master, typename State>
__global__ void update_kernel(DeviceUpdate update) {
  const int64_t i = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kFour;
  if (i < update.count) update_four<Rule, Master, State>(update, i);
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
  using Launch = void (*)(const DeviceUpdate& update, cudaStream_t stream);
  constexpr Launch kLaunches[] = {launch<AdamFormula>, launch<LionFormula>, launch<AdagradFormula>,
                                  launch<SgdFormula>, launch<SgdMomentumFormula>};
  static_assert(sizeof(kLaunches) == kNumFormulas * sizeof(Launch), "one for each Formula");
  kLaunches[update.step.formula](update, stream);
}

}  // namespace zeroth::optim::kernel
