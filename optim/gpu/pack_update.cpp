#include "optim/gpu/pack_update.h"

#include <algorithm>

#include "base/error.h"
#include "optim/device_step.h"
#include "optim/tensor_format.h"

namespace zeroth::optim::kernel {
namespace {

using torch::Tensor;

bool aligned(const Tensor& x) {
  const auto four = 4 * static_cast<uintptr_t>(x.element_size());
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % four == 0;
}

}  // namespace

PackedUpdate pack_update(const Tensor& master, const Tensor& grad, at::TensorList states,
                         const std::optional<Tensor>& copy, at::IntArrayRef words) {
  StepWords packed_words;
  ZEROTH_CHECK(words.size() == packed_words.size() && states.size() <= 2, "{} words, {} states",
               words.size(), states.size());
  std::copy(words.begin(), words.end(), packed_words.begin());
  const DeviceStep step = unpack_step(packed_words);
  ZEROTH_CHECK(states.size() == num_states(step.formula), "{} states of formula {}", states.size(),
               static_cast<int>(step.formula));
  PackedUpdate packed;
  packed.formula = step.formula;
  packed.state_format.bf16_master = to_format(master.scalar_type()) == kBf16;
  packed.state_format.bf16_states = !states.empty() && to_format(states[0].scalar_type()) == kBf16;
  DeviceUpdate& update = packed.update;
  update.constants = step.constants;
  update.undecayed = step.undecayed;
  update.decay_ranges = step.decay_ranges;
  update.offsets = step.offsets;
  std::copy(std::begin(step.keys), std::end(step.keys), update.keys);
  update.count = master.numel();
  update.master = master.data_ptr();
  update.grad = grad.const_data_ptr();
  update.grad_format = to_format(grad.scalar_type());
  update.aligned = aligned(master) && aligned(grad);
  for (size_t i = 0; i < states.size(); ++i) {
    update.states[i] = states[i].data_ptr();
    update.aligned = update.aligned && aligned(states[i]);
  }
  if (copy) {
    update.copy = copy->data_ptr();
    update.copy_format = to_format(copy->scalar_type());
    update.aligned = update.aligned && aligned(*copy);
  }
  return packed;
}

}  // namespace zeroth::optim::kernel
