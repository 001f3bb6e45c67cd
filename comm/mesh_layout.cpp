#include "comm/mesh_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace zeroth::comm {
namespace {

// Returns `whole` cut so that `rank`, at index i of its part, goes to part key(i, rank).
template <typename Key>
Partition cut(const Partition& whole, const std::string& name, const Key& key) {
  Partition partition{name, {}};
  for (const std::vector<int>& ranks : whole.parts) {
    std::map<int, std::vector<int>> parts;
    for (int i = 0; const int rank : ranks) parts[key(i++, rank)].push_back(rank);
    for (auto& [number, part] : parts) partition.parts.push_back(std::move(part));
  }
  return partition;
}

}  // namespace

const char* to_string(MeshDim dim) {
  constexpr std::array kNames = {"pipe", "data", "context", "expert", "tensor"};
  static_assert(kNames.size() == kAllMeshDims.size());
  return kNames[static_cast<size_t>(dim)];
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
  return cut(
      along({MeshDim::kDp, MeshDim::kTp}), fmt::format("data x {} of tensor", num_replicas),
      [&](int /*index*/, int rank) { return coordinate(rank, MeshDim::kTp) / num_replicas; });
}

Partition MeshLayout::pp_group(const std::string& name, const std::vector<int>& coordinates) const {
  return cut(along({MeshDim::kPp}), name, [&](int index, int rank) {
    const bool in = std::ranges::count(coordinates, coordinate(rank, MeshDim::kPp)) > 0;
    return in ? -1 : index;
  });
}

Partition MeshLayout::secondary_shard_group(int num_replicas, int dp_ranks) const {
  ZEROTH_CHECK(dp_ranks > 0 && shape_[MeshDim::kDp] % dp_ranks == 0, "runs of {} on {} ranks",
               dp_ranks, shape_[MeshDim::kDp]);
  const Partition whole = shard_group(num_replicas);
  const int run = dp_ranks * num_replicas;
  return cut(whole, fmt::format("{}, {} near", whole.name, run),
             [run](int i, int /*rank*/) { return i / run; });
}

Partition MeshLayout::secondary_replica_group(int num_replicas, int dp_ranks) const {
  const Partition whole = shard_group(num_replicas);
  const int run = dp_ranks * num_replicas;
  return cut(whole, fmt::format("{}, across {}", whole.name, run),
             [run](int i, int /*rank*/) { return i % run; });
}

}  // namespace zeroth::comm
