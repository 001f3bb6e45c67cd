#include "tests/support/update_on_cpu.h"

#include "optim/gpu/pack_update.h"

#define ZEROTH_INLINE inline
#include "tests/support/scalar_lanes.h"
//
#include "optim/gpu/update_four.h"

namespace zeroth::optim::kernel {
namespace {

template <typename Rule>
void run(const StateFormat& state_format, const DeviceUpdate& update) {
  for (int64_t i = 0; i < update.count; i += kFour) {
    if (!state_format.bf16_master) {
      update_four<Rule, float, float>(update, i);
    } else if (state_format.bf16_states) {
      update_four<Rule, Bf16, Bf16>(update, i);
    } else {
      update_four<Rule, Bf16, float>(update, i);
    }
  }
}

void run(const PackedUpdate& packed) {
  const auto with = packed.formula == kAdam      ? run<AdamFormula>
                    : packed.formula == kLion    ? run<LionFormula>
                    : packed.formula == kAdagrad ? run<AdagradFormula>
                    : packed.formula == kSgd     ? run<SgdFormula>
                                                 : run<SgdMomentumFormula>;
  with(packed.state_format, packed.update);
}

}  // namespace
}  // namespace zeroth::optim::kernel

namespace zeroth::testing {

void update_on_cpu(const torch::Tensor& master, const torch::Tensor& grad, at::TensorList states,
                   const std::optional<torch::Tensor>& copy, at::IntArrayRef words) {
  optim::kernel::run(optim::kernel::pack_update(master, grad, states, copy, words));
}

}  // namespace zeroth::testing
