#include "trainer/agreement.h"

#include <cstring>

#include "base/error.h"

namespace zeroth::trainer {

int64_t greatest(comm::Mesh& mesh, int64_t value, std::string_view what) {
  const torch::Tensor tensor =
      torch::full({1}, value, torch::dtype(torch::kInt64).device(mesh.device()));
  mesh.data().all_reduce(tensor, comm::Reduce::kMax, what).wait();
  return tensor.item<int64_t>();
}

void throw_if_rank_0_failed(comm::Mesh& mesh, const std::optional<std::string>& complaint) {
  const bool writes = mesh.rank() == 0;
  const std::string own = writes ? complaint.value_or("") : "";
  const int64_t length = greatest(mesh, static_cast<int64_t>(own.size()), "rank 0's outcome");
  if (length == 0) return;
  torch::Tensor bytes = torch::zeros({length}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), own.data(), own.size());
  bytes = bytes.to(mesh.device());
  mesh.data().broadcast(bytes, 0, "what failed").wait();
  bytes = bytes.to(torch::kCPU);
  const std::string text(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(length));
  throw Error("{}{}", writes ? "" : "rank 0 failed: ", text);
}

}  // namespace zeroth::trainer
