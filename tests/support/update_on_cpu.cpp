#include "tests/support/update_on_cpu.h"

#include <iterator>

#include "optim/gpu/pack_update.h"

#define ZEROTH_INLINE inline
#include "tests/support/scalar_lanes.h"
//
#include "optim/gpu/update_coded.h"
#include "optim/gpu/update_four.h"

namespace zeroth::optim::kernel {
namespace {

template <typename Rule>
void update_all(const DeviceUpdate& update) {
  for (int64_t i = 0; i < update.count; i += kFour) {
    if (!update.bf16_master) {
      update_four<Rule, float, float>(update, i);
    } else if (update.bf16_states) {
      update_four<Rule, Bf16, Bf16>(update, i);
    } else {
      update_four<Rule, Bf16, float>(update, i);
    }
  }
}

// As the threads of a warp do, for each code block.
void update_coded(const DeviceUpdate& update) {
  for (int64_t begin = 0; begin < update.count; begin += kCodeBlock) {
    CodedElements threads[kCodeBlock / kCodedElements];
    float largest[kMaxStates] = {};
    for (size_t t = 0; t < std::size(threads); ++t) {
      threads[t].update(update, begin + static_cast<int64_t>(t) * kCodedElements);
      for (size_t k = 0; k < kMaxStates; ++k) {
        largest[k] = larger(largest[k], threads[t].largest[k]);
      }
    }
    for (size_t t = 0; t < std::size(threads); ++t) {
      threads[t].encode(update, begin + static_cast<int64_t>(t) * kCodedElements, largest);
    }
  }
}

void run(const DeviceUpdate& update) {
  if (update.step.formula == kCodedAdam) return update_coded(update);
  constexpr void (*kUpdates[])(const DeviceUpdate&) = {
      update_all<AdamFormula>, update_all<LionFormula>, update_all<AdagradFormula>,
      update_all<SgdFormula>, update_all<SgdMomentumFormula>};
  static_assert(std::size(kUpdates) == kNumFormulas, "one for each Formula");
  kUpdates[update.step.formula](update);
}

}  // namespace
}  // namespace zeroth::optim::kernel

namespace zeroth::testing {

void update_on_cpu(const torch::Tensor& master, const torch::Tensor& grad, at::TensorList states,
                   const std::optional<torch::Tensor>& copy, at::IntArrayRef words,
                   const std::optional<torch::Tensor>& tables) {
  optim::kernel::run(optim::kernel::pack_update(master, grad, states, copy, words, tables));
}

}  // namespace zeroth::testing
