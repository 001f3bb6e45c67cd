#include "engine/mesh_ranks.h"

#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <cstring>

namespace zeroth::engine {

// Texts of unequal length travel in rows as long as the longest.
std::vector<std::string> MeshRanks::gather(const std::string& mine) {
  const int64_t own = std::ssize(mine);
  torch::Tensor lengths = at::zeros({size()}, torch::kLong);
  lengths[rank()] = own;
  lengths = lengths.to(mesh_.device());
  mesh_.data().all_reduce(lengths, comm::Reduce::kSum, "lengths of what ranks tell").wait();
  lengths = lengths.to(torch::kCPU);
  const int64_t longest = lengths.max().item<int64_t>();
  std::vector<std::string> all(static_cast<size_t>(size()));
  if (longest == 0) return all;

  const torch::Tensor row = at::zeros({longest}, torch::kUInt8);
  std::memcpy(row.data_ptr(), mine.data(), mine.size());
  torch::Tensor rows =
      at::zeros({size() * longest}, torch::TensorOptions(mesh_.device()).dtype(torch::kUInt8));
  mesh_.data().all_gather(rows, row.to(mesh_.device()), "what ranks tell").wait();
  rows = rows.to(torch::kCPU);
  const char* const bytes = static_cast<const char*>(rows.data_ptr());
  for (int64_t i = 0; i < size(); ++i) {
    all[static_cast<size_t>(i)].assign(bytes + i * longest,
                                       static_cast<size_t>(lengths[i].item<int64_t>()));
  }
  return all;
}

}  // namespace zeroth::engine
