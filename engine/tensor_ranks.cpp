#include "engine/tensor_ranks.h"

namespace zeroth::engine {

using comm::Axis;
using model::TensorRanks;

model::TensorRanksPtr tensor_ranks(const comm::Mesh& mesh, const configs::Config& config) {
  const int size = mesh.grid().shape()[Axis::kTensor];
  if (size == 1) return {};
  return c10::make_intrusive<TensorRanks>(
      mesh.coordinate(Axis::kTensor), size,
      TensorRanks::Options{.group = &mesh.group({Axis::kTensor}),
                           .overlap = config.tensor_parallel.overlap_comm});
}

model::TensorRanksPtr rehearsed_tensor_ranks(const configs::Config& config) {
  const auto size = static_cast<int>(config.tensor_parallel.size);
  if (size == 1) return {};
  return c10::make_intrusive<TensorRanks>(0, size, TensorRanks::Options{});
}

}  // namespace zeroth::engine
