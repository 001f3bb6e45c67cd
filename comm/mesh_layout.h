// The ranks of a run as a grid: which axes there are and where each rank stands. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "comm/group.h"

namespace zeroth::comm {

// Outermost first: ranks that differ on the last axis alone are neighbours.
enum class MeshDim { kPp, kDp, kCp, kEp, kTp };
inline constexpr std::array kAllMeshDims = {MeshDim::kPp, MeshDim::kDp, MeshDim::kCp, MeshDim::kEp,
                                            MeshDim::kTp};

// "tensor"
const char* to_string(MeshDim dim);

// A set of axes.
class MeshDims {
 public:
  constexpr MeshDims(std::initializer_list<MeshDim> dims) {
    for (const MeshDim dim : dims) bits_ |= 1u << static_cast<unsigned>(dim);
  }
  constexpr bool has(MeshDim dim) const { return bits_ >> static_cast<unsigned>(dim) & 1u; }
  bool operator<(const MeshDims& other) const { return bits_ < other.bits_; }

 private:
  uint32_t bits_ = 0;
};

// How many ranks there are on each axis.
class MeshShape {
 public:
  MeshShape() { sizes_.fill(1); }
  static MeshShape data_parallel(int ranks) { return MeshShape().with(MeshDim::kDp, ranks); }
  MeshShape with(MeshDim dim, int ranks) const;

  int operator[](MeshDim dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int ranks() const;
  int ranks_along(MeshDims dims) const;
  // "data 2 x tensor 4": axes of one rank are left out; "data 1" where all are.
  std::string str() const;
  bool operator==(const MeshShape&) const = default;

 private:
  std::array<int, kAllMeshDims.size()> sizes_;
};

// Ranks are numbered row by row: the last axis counts fastest.
class MeshLayout {
 public:
  explicit MeshLayout(const MeshShape& shape) : shape_(shape) {}

  const MeshShape& shape() const { return shape_; }
  int coordinate(int rank, MeshDim dim) const;
  // "data x tensor"
  static std::string to_string(MeshDims dims);
  // The ranks in groups of those that differ on `dims` alone, each ascending; named after the axes.
  Partition along(MeshDims dims) const;
  // The ranks that hold the same parameters where `num_replicas` neighbours of axis tensor do: they
  // differ on data, and on tensor within a run of `num_replicas`, which divides the axis.
  Partition shard_group(int num_replicas) const;
  // The same cut into runs of `dp_ranks` neighbours on axis data, which divide it: the ranks of
  // one run, and those that stand at one place of their runs.
  Partition secondary_shard_group(int num_replicas, int dp_ranks) const;
  Partition secondary_replica_group(int num_replicas, int dp_ranks) const;

 private:
  MeshShape shape_;
};

}  // namespace zeroth::comm
