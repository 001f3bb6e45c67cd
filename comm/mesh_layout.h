// The ranks of a run as a grid: its dimensions and each rank's coordinates. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "comm/groups/group.h"

namespace zeroth::comm {

// Mesh dimensions, outermost first: ranks that differ in the last one only are neighbors.
enum class MeshDim { kPp, kDp, kCp, kEp, kTp };
inline constexpr std::array kAllMeshDims = {MeshDim::kPp, MeshDim::kDp, MeshDim::kCp, MeshDim::kEp,
                                            MeshDim::kTp};

// Returns the name of a dimension, such as "tensor".
const char* to_string(MeshDim dim);

// MeshDims is a set of mesh dimensions.
class MeshDims {
 public:
  constexpr MeshDims(std::initializer_list<MeshDim> dims) {
    for (const MeshDim dim : dims) bits_ |= 1u << static_cast<unsigned>(dim);
  }
  constexpr bool has(MeshDim dim) const { return bits_ >> static_cast<unsigned>(dim) & 1u; }

 private:
  uint32_t bits_ = 0;
};

// MeshShape is the number of ranks in each dimension.
class MeshShape {
 public:
  MeshShape() { sizes_.fill(1); }
  static MeshShape data_parallel(int ranks) { return MeshShape().with(MeshDim::kDp, ranks); }
  MeshShape with(MeshDim dim, int ranks) const;

  int operator[](MeshDim dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int ranks() const;
  int ranks_along(MeshDims dims) const;
  // Returns "data 2 x tensor 4": omits dimensions of one rank; returns "data 1" if all have one.
  std::string str() const;
  bool operator==(const MeshShape&) const = default;

 private:
  std::array<int, kAllMeshDims.size()> sizes_;
};

// MeshLayout numbers ranks in row-major order: the last dimension varies fastest.
class MeshLayout {
 public:
  explicit MeshLayout(const MeshShape& shape) : shape_(shape) {}

  const MeshShape& shape() const { return shape_; }
  int coordinate(int rank, MeshDim dim) const;
  // Returns "data x tensor", for example.
  static std::string to_string(MeshDims dims);
  // Partitions the ranks into groups that differ in `dims` only, each ascending; the name lists the
  // dimensions.
  Partition along(MeshDims dims) const;
  // Partitions the ranks into those that hold the same parameters if `num_replicas` neighbors of
  // dimension tp do: they differ in dp, and in tp within a run of `num_replicas` ranks, which
  // divides the dimension.
  Partition shard_group(int num_replicas) const;
  // Partitions the ranks into those that differ in dimension pp only and are at one of these
  // coordinates there, ascending; each other rank is alone. `name` is that of the partition.
  Partition pp_group(const std::string& name, const std::vector<int>& coordinates) const;
  // Cut the groups of shard_group() into runs of `dp_ranks` neighbors in dimension dp, which divide
  // it. The first returns the ranks of each run, the second the ranks with the same index in their
  // runs.
  Partition secondary_shard_group(int num_replicas, int dp_ranks) const;
  Partition secondary_replica_group(int num_replicas, int dp_ranks) const;

 private:
  MeshShape shape_;
};

}  // namespace zeroth::comm
