#include "engine/step/tensor_parallel_group.h"

namespace zeroth::engine {

using comm::MeshDim;
using model::TensorParallel;

model::TensorParallelPtr tensor_parallel_group(const comm::DeviceMesh& mesh,
                                               const configs::Config& config) {
  const int size = mesh.layout().shape()[MeshDim::kTp];
  if (size == 1) return {};
  return std::make_shared<TensorParallel>(
      mesh.coordinate(MeshDim::kTp), size,
      TensorParallel::CommOptions{.group = &mesh.group({MeshDim::kTp}),
                                  .overlap = config.tensor_parallel.overlap_comm});
}

model::TensorParallelPtr fake_tensor_parallel(const configs::Config& config) {
  const auto size = static_cast<int>(config.tensor_parallel.size);
  if (size == 1) return {};
  return std::make_shared<TensorParallel>(0, size, TensorParallel::CommOptions{});
}

}  // namespace zeroth::engine
