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
enum class Axis { kPipe, kData, kContext, kExpert, kTensor };
inline constexpr std::array kAllAxes = {Axis::kPipe, Axis::kData, Axis::kContext, Axis::kExpert,
                                        Axis::kTensor};

// "tensor"
const char* name_of(Axis axis);

// A set of axes.
class Axes {
 public:
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= 1u << static_cast<unsigned>(axis);
  }
  constexpr bool has(Axis axis) const { return bits_ >> static_cast<unsigned>(axis) & 1u; }
  bool operator<(const Axes& other) const { return bits_ < other.bits_; }

 private:
  uint32_t bits_ = 0;
};

// How many ranks there are on each axis.
class GridShape {
 public:
  GridShape() { sizes_.fill(1); }
  static GridShape data(int ranks) { return GridShape().with(Axis::kData, ranks); }
  GridShape with(Axis axis, int ranks) const;

  int operator[](Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  int ranks() const;
  int ranks_along(Axes axes) const;
  // "data 2 x tensor 4": axes of one rank are left out; "data 1" where all are.
  std::string str() const;
  bool operator==(const GridShape&) const = default;

 private:
  std::array<int, kAllAxes.size()> sizes_;
};

// Ranks are numbered row by row: the last axis counts fastest.
class RankGrid {
 public:
  explicit RankGrid(const GridShape& shape) : shape_(shape) {}

  const GridShape& shape() const { return shape_; }
  int coordinate(int rank, Axis axis) const;
  // "data x tensor"
  static std::string name_of(Axes axes);
  // The ranks in groups of those that differ on `axes` alone, each ascending; named after the axes.
  Partition along(Axes axes) const;
  // The ranks that hold the same parameters where `copies` neighbours of axis tensor do: they
  // differ on data, and on tensor within a run of `copies`, which divides the axis.
  Partition sharing(int copies) const;
  // The same cut into runs of `data_ranks` neighbours on axis data, which divide it: the ranks of
  // one run, and those that stand at one place of their runs.
  Partition sharing_near(int copies, int data_ranks) const;
  Partition sharing_across(int copies, int data_ranks) const;

 private:
  GridShape shape_;
};

}  // namespace zeroth::comm
