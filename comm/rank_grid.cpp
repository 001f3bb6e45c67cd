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

std::string RankGrid::name_of(Axes axes) {
  std::vector<std::string> names;
  for (const Axis axis : kAllAxes) {
    if (axes.has(axis)) names.emplace_back(comm::name_of(axis));
  }
  return fmt::format("{}", fmt::join(names, " x "));
}

Partition RankGrid::along(Axes axes) const {
  Partition partition{name_of(axes), {}};
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

Partition RankGrid::sharing(int copies) const {
  const int tensor = shape_[Axis::kTensor];
  ZEROTH_CHECK(copies > 0 && tensor % copies == 0, "{} copies on {} ranks", copies, tensor);
  if (copies == 1) return along({Axis::kData});
  if (copies == tensor) return along({Axis::kData, Axis::kTensor});
  Partition partition{fmt::format("data x {} of tensor", copies), {}};
  for (const std::vector<int>& ranks : along({Axis::kData, Axis::kTensor}).parts) {
    std::map<int, std::vector<int>> runs;
    for (const int rank : ranks) runs[coordinate(rank, Axis::kTensor) / copies].push_back(rank);
    for (auto& [run, of_run] : runs) partition.parts.push_back(std::move(of_run));
  }
  return partition;
}

namespace {

// Parts of `whole` in which rank number i of a part comes to part `key(i)`.
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

Partition RankGrid::sharing_near(int copies, int data_ranks) const {
  ZEROTH_CHECK(data_ranks > 0 && shape_[Axis::kData] % data_ranks == 0, "runs of {} on {} ranks",
               data_ranks, shape_[Axis::kData]);
  const Partition whole = sharing(copies);
  const int run = data_ranks * copies;
  return cut(whole, fmt::format("{}, {} near", whole.name, run), [run](int i) { return i / run; });
}

Partition RankGrid::sharing_across(int copies, int data_ranks) const {
  const Partition whole = sharing(copies);
  const int run = data_ranks * copies;
  return cut(whole, fmt::format("{}, across {}", whole.name, run),
             [run](int i) { return i % run; });
}

}  // namespace zeroth::comm
