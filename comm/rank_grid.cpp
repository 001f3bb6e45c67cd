#include "comm/rank_grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/error.h"

namespace zeroth::comm {

const char* name_of(Axis axis) {
  switch (axis) {
    case Axis::kPipe:
      return "pipe";
    case Axis::kData:
      return "data";
    case Axis::kContext:
      return "context";
    case Axis::kExpert:
      return "expert";
    case Axis::kTensor:
      return "tensor";
  }
  return "";
}

GridShape GridShape::with(Axis axis, int ranks) const {
  ZEROTH_CHECK(ranks > 0, "{} ranks on axis {}", ranks, name_of(axis));
  GridShape shape = *this;
  shape.sizes_[static_cast<size_t>(axis)] = ranks;
  return shape;
}

int GridShape::ranks() const {
  return ranks_along({Axis::kPipe, Axis::kData, Axis::kContext, Axis::kExpert, Axis::kTensor});
}

int GridShape::ranks_along(Axes axes) const {
  int ranks = 1;
  for (const Axis axis : kAllAxes) {
    if (axes.has(axis)) ranks *= (*this)[axis];
  }
  return ranks;
}

std::string GridShape::str() const {
  std::vector<std::string> axes;
  for (const Axis axis : kAllAxes) {
    if ((*this)[axis] > 1) axes.push_back(fmt::format("{} {}", name_of(axis), (*this)[axis]));
  }
  return axes.empty() ? "data 1" : fmt::format("{}", fmt::join(axes, " x "));
}

int RankGrid::coordinate(int rank, Axis axis) const {
  ZEROTH_CHECK(rank >= 0 && rank < shape_.ranks(), "rank {} of {}", rank, shape_.str());
  int inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < kAllAxes.size(); ++i)
    inner *= shape_[kAllAxes[i]];
  return rank / inner % shape_[axis];
}

Partition RankGrid::along(Axes axes) const {
  std::vector<std::string> names;
  for (const Axis axis : kAllAxes) {
    if (axes.has(axis)) names.emplace_back(name_of(axis));
  }
  Partition partition{fmt::format("{}", fmt::join(names, " x ")), {}};
  std::map<std::vector<int>, std::vector<int>> parts;  // by where they stand on the other axes
  for (int rank = 0; rank < shape_.ranks(); ++rank) {
    std::vector<int> others;
    for (const Axis axis : kAllAxes) {
      if (!axes.has(axis)) others.push_back(coordinate(rank, axis));
    }
    parts[others].push_back(rank);
  }
  for (auto& [others, ranks] : parts) partition.parts.push_back(std::move(ranks));
  return partition;
}

}  // namespace zeroth::comm
