#include "optim/kernel_rules.h"

#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "optim/gpu/device_update.h"
#include "optim/tensor_format.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;
using Update = void(const Tensor& master, const Tensor& grad, at::TensorList states,
                    const std::optional<Tensor>& copy, at::IntArrayRef step,
                    const std::optional<Tensor>& tables);

c10::OperatorHandle find_update_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("zeroth::update_", "");
}

// Packs as many of the elements [begin, limit) as one call accepts into `packed`; returns their
// end.
int64_t pack_decay_ranges(std::span<const ParamGroupRange> param_groups, int64_t begin,
                          int64_t limit, kernel::DecayRanges& packed) {
  constexpr int64_t kPerThread = 4;
  packed = {};
  int64_t end = begin;
  for (const ParamGroupRange& group : param_groups) {
    if (group.end <= end) continue;
    const bool full = packed.count == kernel::kMaxDecayRanges || (end - begin) % kPerThread != 0;
    if (full || end == limit) break;
    ZEROTH_CHECK(group.begin <= end, "elements from {} to {} are in no parameter group range", end,
                 group.begin);
    end = std::min(group.end, limit);
    if (!group.decays) packed.undecayed |= uint32_t{1} << packed.count;
    packed.ends[packed.count++] = end - begin;
  }
  ZEROTH_CHECK(end > begin, "elements from {} on are in no parameter group range", begin);
  return end;
}

// Returns the tables of codes as bytes on the device.
Tensor make_tables(torch::Device device) {
  const kernel::CodeTables& tables = kernel::code_tables();
  const Tensor bytes = at::empty({static_cast<int64_t>(sizeof(tables))}, torch::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &tables, sizeof(tables));
  return bytes.to(device);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(zeroth, library) {
  // `step` holds the words of a kernel::DeviceStep, `tables` the bytes of kernel::CodeTables if the
  // states are coded; their maxima follow them.
  library.def(
      "update_(Tensor(a!) master, Tensor grad, Tensor(b!)[] states, Tensor(c!)? copy, int[] step, "
      "Tensor? tables=None) -> ()");
}

void CpuRule::apply(const Chunk& chunk, const UpdateStep& step) const {
  check_arguments(chunk, step);
  ZEROTH_CHECK(chunk.master.is_cpu(), "a chunk on {}", chunk.master.device().str());
  CpuChunk cpu_chunk = {.count = chunk.master.numel(),
                        .master = chunk.master.mutable_data_ptr(),
                        .grad = chunk.grad.const_data_ptr(),
                        .grad_format = kernel::to_format(chunk.grad.scalar_type()),
                        .first_element = chunk.first_element,
                        .offsets = chunk.offsets};
  for (size_t i = 0; i < chunk.states.size(); ++i) {
    cpu_chunk.states.at(i) = chunk.states[i].mutable_data_ptr();
  }
  for (size_t i = 0; i < chunk.maxima.size(); ++i) {
    cpu_chunk.maxima.at(i) = chunk.maxima[i].mutable_data_ptr<float>();
  }
  if (chunk.copy.defined()) {
    cpu_chunk.copy = chunk.copy.mutable_data_ptr();
    cpu_chunk.copy_format = kernel::to_format(chunk.copy.scalar_type());
  }
  update_.apply(cpu_chunk, step);
}

bool DeviceRule::runs_on(torch::Device device) {
  return device.is_cuda() && find_update_operator().hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

void DeviceRule::call(const Chunk& chunk, const kernel::DeviceStep& step) const {
  static const auto op = find_update_operator().typed<Update>();
  kernel::StepWords words = {};
  std::memcpy(words.data(), &step, sizeof(step));
  const auto copy = chunk.copy.defined() ? std::optional(chunk.copy) : std::nullopt;
  std::vector<Tensor> states = chunk.states;
  states.insert(states.end(), chunk.maxima.begin(), chunk.maxima.end());
  if (is_coded() && !tables_.defined()) tables_ = make_tables(chunk.master.device());
  op.call(chunk.master, chunk.grad, states, copy, words,
          is_coded() ? std::optional(tables_) : std::nullopt);
}

void DeviceRule::apply(const Chunk& chunk, const UpdateStep& step) const {
  const ParamGroupRange whole{0, chunk.master.numel()};
  apply_param_groups(chunk, step, {&whole, 1});
}

void DeviceRule::apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                                    std::span<const ParamGroupRange> param_groups) const {
  check_arguments(chunk, step);
  ZEROTH_CHECK(chunk.first_element >= 0, "a chunk from element {}", chunk.first_element);
  kernel::DeviceStep device_step;
  device_step.constants = kernel::make_constants(config(), step);
  device_step.undecayed = kernel::make_constants(config(), step.without_decay());
  device_step.formula = kernel::select_formula(config());
  // Make one call, or one for each run of offsets if these are read.
  const int64_t numel = chunk.master.numel();
  for (int64_t begin = 0, end = 0; begin < numel; begin = end) {
    int64_t limit = numel;
    if (master_dtype() == torch::kBFloat16) {
      const int64_t before = chunk.first_element;
      const OffsetRun part = offset_run(chunk.offsets, before + begin, before + numel);
      limit = part.end - before;
      device_step.offsets = part.offsets;
      kernel::set_rounding_keys(step, part.offsets.first, device_step.keys);
    }
    end = pack_decay_ranges(param_groups, begin, limit, device_step.decay_ranges);
    ZEROTH_CHECK(begin % alignment() == 0 || !is_coded(), "a code block from element {}", begin);
    call(chunk.narrow(begin, end - begin), device_step);
  }
}

}  // namespace zeroth::optim
