#include "optim/squared_norm.h"

#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/machine/parallel.h"
#include "optim/cpu/cpu_update.h"
#include "optim/tensor_format.h"

namespace zeroth::optim {
namespace {

using torch::Tensor;
using SquaredNorms = Tensor(at::TensorList tensors);

constexpr int64_t kGrain = 4;  // chunks

struct NormChunk {
  const void* from;
  int64_t count;
  kernel::Format format;
};

double sum_chunks(const double* parts, size_t count) {
  double lanes[kernel::kNormWarp] = {};
  for (size_t i = 0; i < count; ++i) lanes[i % kernel::kNormWarp] += parts[i];
  return kernel::sum_by_halves(lanes);
}

Tensor squared_norms_cpu(at::TensorList tensors) {
  std::vector<NormChunk> chunks;
  std::vector<size_t> ends;
  for (const Tensor& tensor : tensors) {
    ZEROTH_CHECK(tensor.is_contiguous(), "the norm of a tensor that is not contiguous");
    const kernel::Format format = kernel::to_format(tensor.scalar_type());
    const auto* const bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    for (int64_t begin = 0; begin < tensor.numel(); begin += kernel::kNormChunk) {
      chunks.push_back({bytes + begin * static_cast<int64_t>(tensor.element_size()),
                        std::min(kernel::kNormChunk, tensor.numel() - begin), format});
    }
    ends.push_back(chunks.size());
  }
  std::vector<double> parts(chunks.size());
  const auto& sum_chunk = select_kernels(cpu_isa()).sum_chunk;
  parallel_for(static_cast<int64_t>(chunks.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto& [from, count, format] = chunks[i];
      parts[i] = sum_chunk[format](from, count);
    }
  });
  Tensor norms = at::empty({static_cast<int64_t>(ends.size())}, torch::kDouble);
  size_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = ends[i++]) {
    norms.mutable_data_ptr<double>()[i] = sum_chunks(parts.data() + begin, ends[i] - begin);
  }
  return norms;
}

Tensor squared_norms_meta(at::TensorList tensors) {
  return at::empty({static_cast<int64_t>(tensors.size())},
                   tensors[0].options().dtype(torch::kDouble));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(zeroth, library) {
  library.def("squared_norms(Tensor[] tensors) -> Tensor");
}
TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("squared_norms", squared_norms_cpu);
}
TORCH_LIBRARY_IMPL(zeroth, Meta, library) {
  library.impl("squared_norms", squared_norms_meta);
}

Tensor squared_norms(const std::vector<Tensor>& tensors, torch::Device device) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("zeroth::squared_norms", "")
                             .typed<SquaredNorms>();
  if (tensors.empty()) return torch::empty({0}, torch::TensorOptions(device).dtype(torch::kDouble));
  const Tensor norms = op.call(tensors);
  if (!norms.is_cpu() || device.is_cpu()) return norms;
  return norms.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace zeroth::optim
