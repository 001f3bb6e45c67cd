// The ranks as a grid with the axes pipe, data and tensor; tensor is innermost, so that it stays
// inside a node. Pure arithmetic.
#pragma once

#include <vector>

namespace zeroth::comm {

struct GridSize {
  int pipe = 1;
  int data = 1;
  int tensor = 1;
  int ranks() const { return pipe * data * tensor; }
};

struct GridPosition {
  int pipe = 0;
  int data = 0;
  int tensor = 0;
  bool operator==(const GridPosition&) const = default;
};

class RankGrid {
 public:
  // Throws an Error with both values when the grid does not have `world_size` ranks or an axis is
  // below 1.
  RankGrid(const GridSize& size, int world_size);

  GridPosition position(int rank) const;
  int rank(const GridPosition& position) const;
  // Ranks that differ from `rank` along the axis only, in axis order, `rank` included.
  std::vector<int> data_peers(int rank) const;
  std::vector<int> tensor_peers(int rank) const;
  std::vector<int> pipe_peers(int rank) const;

 private:
  GridSize size_;
};

}  // namespace zeroth::comm
