#include "comm/mesh_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/error.h"

namespace zeroth::comm {

const char* to_string(MeshDim dim) {
  switch (dim) {
    case MeshDim::kPp:
      return "pipe";
    case MeshDim::kDp:
      return "data";
    case MeshDim::kCp:
      return "context";
    case MeshDim::kEp:
      return "expert";
    case MeshDim::kTp:
      return "tensor";
  }
  return "";
}

MeshShape MeshShape::with(MeshDim dim, int ranks) const {
  ZEROTH_CHECK(ranks > 0, "{} ranks on mesh dim {}", ranks, to_string(dim));
  MeshShape shape = *this;
  shape.sizes_[static_cast<size_t>(dim)] = ranks;
  return shape;
}

int MeshShape::ranks() const {
  return ranks_along({MeshDim::kPp, MeshDim::kDp, MeshDim::kCp, MeshDim::kEp, MeshDim::kTp});
}

int MeshShape::ranks_along(MeshDims dims) const {
  int ranks = 1;
  for (const MeshDim dim : kAllMeshDims) {
    if (dims.has(dim)) ranks *= (*this)[dim];
  }
  return ranks;
}

std::string MeshShape::str() const {
  std::vector<std::string> dims;
  for (const MeshDim dim : kAllMeshDims) {
    if ((*this)[dim] > 1) dims.push_back(fmt::format("{} {}", to_string(dim), (*this)[dim]));
  }
  return dims.empty() ? "data 1" : fmt::format("{}", fmt::join(dims, " x "));
}

int MeshLayout::coordinate(int rank, MeshDim dim) const {
  ZEROTH_CHECK(rank >= 0 && rank < shape_.ranks(), "rank {} of {}", rank, shape_.str());
  int inner = 1;
  for (size_t i = static_cast<size_t>(dim) + 1; i < kAllMeshDims.size(); ++i)
    inner *= shape_[kAllMeshDims[i]];
  return rank / inner % shape_[dim];
}

std::string MeshLayout::to_string(MeshDims dims) {
  std::vector<std::string> names;
  for (const MeshDim dim : kAllMeshDims) {
    if (dims.has(dim)) names.emplace_back(comm::to_string(dim));
  }
  return fmt::format("{}", fmt::join(names, " x "));
}

Partition MeshLayout::along(MeshDims dims) const {
  Partition partition{to_string(dims), {}};
  std::map<std::vector<int>, std::vector<int>> parts;  // by coordinates in the other dimensions
  for (int rank = 0; rank < shape_.ranks(); ++rank) {
    std::vector<int> others;
    for (const MeshDim dim : kAllMeshDims) {
      if (!dims.has(dim)) others.push_back(coordinate(rank, dim));
    }
    parts[others].push_back(rank);
  }
  for (auto& [others, ranks] : parts) partition.parts.push_back(std::move(ranks));
  return partition;
}

Partition MeshLayout::shard_group(int num_replicas) const {
  const int tensor = shape_[MeshDim::kTp];
  ZEROTH_CHECK(num_replicas > 0 && tensor % num_replicas == 0, "{} copies on {} ranks",
               num_replicas, tensor);
  if (num_replicas == 1) return along({MeshDim::kDp});
  if (num_replicas == tensor) return along({MeshDim::kDp, MeshDim::kTp});
  Partition partition{fmt::format("data x {} of tensor", num_replicas), {}};
  for (const std::vector<int>& ranks : along({MeshDim::kDp, MeshDim::kTp}).parts) {
    std::map<int, std::vector<int>> runs;
    for (const int rank : ranks)
      runs[coordinate(rank, MeshDim::kTp) / num_replicas].push_back(rank);
    for (auto& [run, of_run] : runs) partition.parts.push_back(std::move(of_run));
  }
  return partition;
}

namespace {

// Returns `whole` cut so that the rank at index i of each part goes to part `key(i)`.
template <typename Key>
Partition cut(const Partition& whole, const std::string& name, const Key& key) {
  Partition partition{name, {}};
  for (const std::vector<int>& ranks : whole.parts) {
    std::map<int, std::vector<int>> parts;
    for (int i = 0; i < std::ssize(ranks); ++i)
      parts[key(i)].push_back(ranks[static_cast<size_t>(i)]);
    for (auto& [number, part] : parts) partition.parts.push_back(std::move(part));
  }
  return partition;
}

}  // namespace

Partition MeshLayout::secondary_shard_group(int num_replicas, int dp_ranks) const {
  ZEROTH_CHECK(dp_ranks > 0 && shape_[MeshDim::kDp] % dp_ranks == 0, "runs of {} on {} ranks",
               dp_ranks, shape_[MeshDim::kDp]);
  const Partition whole = shard_group(num_replicas);
  const int run = dp_ranks * num_replicas;
  return cut(whole, fmt::format("{}, {} near", whole.name, run), [run](int i) { return i / run; });
}

Partition MeshLayout::secondary_replica_group(int num_replicas, int dp_ranks) const {
  const Partition whole = shard_group(num_replicas);
  const int run = dp_ranks * num_replicas;
  return cut(whole, fmt::format("{}, across {}", whole.name, run),
             [run](int i) { return i % run; });
}

}  // namespace zeroth::comm
