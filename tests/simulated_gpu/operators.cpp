// The operators of the simulated GPU: those of the CPU, queued on the current stream. Shapes are
// known at once, as on a GPU; values when the work has run.
#include <ATen/ATen.h>
#include <ATen/core/DimVector.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/queued.h"
#include "tests/simulated_gpu/timeline.h"
#include "tests/support/update_on_cpu.h"

namespace zeroth::simulated {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

Tensor on_meta(const Tensor& x) {
  if (!x.defined()) return x;
  return as_number_of(x, at::empty_strided(x.sizes(), x.strides(),
                                           x.options().device(at::kMeta).pinned_memory(false)));
}

Tensor empty_like_meta(const Tensor& meta) {
  return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(at::kCUDA));
}

// What a kernel gets. Of a host tensor its value now.
Tensor argument(const Tensor& x, const c10::OperatorHandle& op) {
  if (!x.defined() || x.is_cuda()) return on_cpu(x);
  TORCH_CHECK(x.dim() == 0, "simulated GPU: ", op.schema(), " gets a tensor of the host, of shape ",
              x.sizes());
  return as_number_of(x, x.clone());
}

IValue mapped_value(const IValue& value, const std::function<Tensor(const Tensor&)>& map,
                    c10::Device device) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isDevice()) return device;
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& x : value.toTensorVector()) list.push_back(map(x));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& x : value.toOptionalTensorVector()) {
      list.push_back(x ? std::optional<Tensor>(map(*x)) : std::nullopt);
    }
    return list;
  }
  return value;
}

Stack mapped(c10::ArrayRef<IValue> values, const std::function<Tensor(const Tensor&)>& map,
             c10::Device device) {
  Stack result;
  for (const IValue& value : values) result.push_back(mapped_value(value, map, device));
  return result;
}

bool is_new(const c10::Argument& returned) {
  return returned.alias_info() == nullptr;
}

// The argument that the operator writes and returns.
size_t returned_argument(const c10::FunctionSchema& schema, size_t returned) {
  const auto& sets = schema.returns()[returned].alias_info()->beforeSets();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite() && info->beforeSets() == sets) return i;
  }
  TORCH_CHECK(false, "simulated GPU: ", schema, " is a view, which tensors.cpp has to know");
}

// What the operator returns for tensors without values; nothing where that is no tensor, its shape
// depends on values, or Meta does not know the operator.
std::optional<Stack> without_values(const c10::OperatorHandle& op, Stack metas) {
  for (const c10::Argument& returned : op.schema().returns()) {
    if (returned.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;
  }
  try {
    op.callBoxed(metas);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  return metas;
}

std::vector<at::DimVector> sizes(const Stack& values) {
  std::vector<at::DimVector> all;
  for (const IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) all.emplace_back(value.toTensor().sizes());
  }
  return all;
}

// The values of `host` on the device.
Tensor moved(const Tensor& host) {
  const Tensor there = empty_like_meta(host);
  queue([to = on_cpu(there), host] { to.copy_(host); });
  return there;
}

// An output that is the operator's to make.
bool comes_empty(const c10::Argument& argument, const IValue& value) {
  return argument.is_out() && value.toTensor().numel() == 0;
}

void give_memory(const Tensor& output, const Tensor& room) {
  output.unsafeGetTensorImpl()->set_storage_keep_dtype(room.storage());
  output.unsafeGetTensorImpl()->set_sizes_and_strides(room.sizes(), room.strides());
}

// Waits for the stream and runs at once: where the host has to know values to go on, as a GPU's
// driver does for a number, a comparison, or shapes that depend on values. What else comes here is
// to have its shape in shapes.cpp.
void run_now(const c10::OperatorHandle& op, const Stack& arguments, Stack host, Stack& stack) {
  finish_current_stream();
  const c10::FunctionSchema& schema = op.schema();
  const auto empty = [&](size_t i) { return comes_empty(schema.arguments()[i], arguments[i]); };
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (empty(i)) host[i] = at::empty({0}, host[i].toTensor().options());
  }
  Stack results = host;
  op.callBoxed(results);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (empty(i)) give_memory(arguments[i].toTensor(), moved(host[i].toTensor()));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_new(schema.returns()[i])) {
      stack.push_back(arguments[returned_argument(schema, i)]);
    } else if (results[i].isTensor() && results[i].toTensor().defined()) {
      stack.push_back(moved(results[i].toTensor()));
    } else {
      stack.push_back(results[i]);
    }
  }
}

// Of the first tensor that is on a GPU.
std::optional<c10::Device> gpu_of(const Stack& arguments) {
  for (const IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().is_cuda()) return value.toTensor().device();
    if (!value.isTensorList()) continue;
    for (const Tensor& x : value.toTensorVector())
      if (x.is_cuda()) return x.device();
  }
  return std::nullopt;
}

std::atomic<CallObserver> observer = nullptr;

void run(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);
  const c10::OptionalDeviceGuard guard(gpu_of(arguments));
  notify_observer(op.operator_name().name, arguments);
  Stack host = mapped(
      arguments, [&](const Tensor& x) { return argument(x, op); }, at::kCPU);

  const auto empty = [&](size_t i) { return comes_empty(schema.arguments()[i], arguments[i]); };
  bool all_known = std::none_of(schema.returns().begin(), schema.returns().end(), is_new);
  for (size_t i = 0; i < count; ++i) all_known = all_known && !empty(i);
  const Stack metas = mapped(arguments, on_meta, at::kMeta);
  std::optional<Stack> returned = Stack(schema.returns().size());
  if (!all_known) returned = without_values(op, metas);
  const bool draws = op.hasTag(at::Tag::nondeterministic_seeded);  // in the host's order
  if (!returned || draws) return run_now(op, arguments, host, *stack);
  for (size_t i = 0; i < count; ++i) {
    if (!empty(i)) continue;
    give_memory(arguments[i].toTensor(), empty_like_meta(metas[i].toTensor()));
    host[i] = on_cpu(arguments[i].toTensor());
  }

  std::vector<Tensor> results;  // undefined: an argument
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (!is_new(schema.returns()[i])) {
      results.emplace_back();
      stack->push_back(arguments[returned_argument(schema, i)]);
      continue;
    }
    const Tensor& meta = (*returned)[i].toTensor();
    const Tensor result = meta.defined() ? empty_like_meta(meta) : Tensor();
    results.push_back(on_cpu(result));
    stack->push_back(result);
  }
  queue([op, host, results] {
    Stack work = host;
    const auto before = sizes(host);
    op.callBoxed(work);
    TORCH_CHECK(sizes(host) == before, "simulated GPU: ", op.schema(), " resizes an argument");
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) continue;
      const Tensor& value = work[i].toTensor();
      TORCH_CHECK(value.sizes() == results[i].sizes(), "simulated GPU: ", op.schema(), " gives ",
                  value.sizes(), ", Meta ", results[i].sizes());
      results[i].copy_(value);
    }
  });
}

}  // namespace

void notify_observer(const std::string& name, c10::ArrayRef<IValue> arguments) {
  if (const CallObserver observe = observer) observe(name, arguments);
}

void run_queued(const c10::OperatorHandle& op, Stack* stack) {
  run(op, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}

// Have kernels of their own on GPUs (optim/kernel_rules.h, optim/squared_norm.h).
TORCH_LIBRARY_IMPL(zeroth, CUDA, library) {
  library.impl("update_", torch::CppFunction::makeFromBoxedFunction<&run>());
  library.impl("squared_norms", torch::CppFunction::makeFromBoxedFunction<&run>());
}
TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("update_", testing::update_on_cpu);
}

}  // namespace zeroth::simulated

// For tests that count calls.
extern "C" __attribute__((visibility("default"))) void zeroth_simulated_observe(
    zeroth::simulated::CallObserver next) {
  zeroth::simulated::observer = next;
}
