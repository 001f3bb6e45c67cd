// Converts the arguments of the operator zeroth::update_ (optim/kernel_rules.h) to those of its
// kernel. This header uses no CUDA: a test runs the same code on the CPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "device/tensor.h"
#include "optim/gpu/device_update.h"
#include "optim/tensor_format.h"

namespace zeroth::optim::kernel {

// Returns the kernel's arguments, which point to memory that the tensors own. The caller checks the
// chunk; `words` are those of a DeviceStep. Throws an InternalError when words or states do not fit
// the formula.
inline DeviceUpdate pack_update(const torch::Tensor& master, const torch::Tensor& grad,
                                at::TensorList states, const std::optional<torch::Tensor>& copy,
                                at::IntArrayRef words, const std::optional<torch::Tensor>& tables) {
  ZEROTH_CHECK(words.size() == StepWords().size(), "{} words", words.size());
  DeviceUpdate update = {.count = master.numel()};
  std::memcpy(static_cast<void*>(&update.step), words.data(), sizeof(update.step));
  const bool coded = update.step.formula == kCodedAdam;
  const size_t count = num_states(update.step.formula);
  ZEROTH_CHECK(states.size() == count * (coded ? 2 : 1), "{} states of formula {}", states.size(),
               static_cast<int>(update.step.formula));
  ZEROTH_CHECK(tables.has_value() == coded && (!coded || tables->nbytes() == sizeof(CodeTables)),
               "tables of codes for formula {}", static_cast<int>(update.step.formula));
  const auto is_aligned = [](const torch::Tensor& x) {
    const auto four = 4 * static_cast<uintptr_t>(x.element_size());
    return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % four == 0;
  };
  update.aligned =
      is_aligned(master) && is_aligned(grad) &&
      std::all_of(states.begin(), states.begin() + static_cast<ptrdiff_t>(count), is_aligned) &&
      (!copy || is_aligned(*copy));
  update.master = master.data_ptr();
  update.bf16_master = to_format(master.scalar_type()) == kBf16;
  update.grad = grad.const_data_ptr();
  update.grad_format = to_format(grad.scalar_type());
  for (size_t i = 0; i < count; ++i) update.states[i] = states[i].data_ptr();
  if (coded) {
    for (size_t i = 0; i < count; ++i) update.maxima[i] = states[count + i].data_ptr<float>();
    update.tables = static_cast<const CodeTables*>(tables->const_data_ptr());
  } else {
    update.bf16_states = !states.empty() && to_format(states[0].scalar_type()) == kBf16;
  }
  if (copy) {
    update.copy = copy->data_ptr();
    update.copy_format = to_format(copy->scalar_type());
  }
  return update;
}

}  // namespace zeroth::optim::kernel
