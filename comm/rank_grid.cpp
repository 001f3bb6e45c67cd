#include "comm/rank_grid.h"

#include "base/error.h"

namespace zeroth::comm {

RankGrid::RankGrid(const GridSize& size, int world_size) : size_(size) {
  if (size.pipe < 1 || size.data < 1 || size.tensor < 1 || size.ranks() != world_size) {
    throw Error("a grid of pipe {} x data {} x tensor {} has {} ranks, but {} were started",
                size.pipe, size.data, size.tensor, size.ranks(), world_size);
  }
}

GridPosition RankGrid::position(int rank) const {
  ZEROTH_CHECK(rank >= 0 && rank < size_.ranks(), "rank {}, ranks {}", rank, size_.ranks());
  return {.pipe = rank / (size_.tensor * size_.data),
          .data = rank / size_.tensor % size_.data,
          .tensor = rank % size_.tensor};
}

int RankGrid::rank(const GridPosition& at) const {
  return (at.pipe * size_.data + at.data) * size_.tensor + at.tensor;
}

std::vector<int> RankGrid::data_peers(int rank) const {
  std::vector<int> peers;
  GridPosition at = position(rank);
  for (at.data = 0; at.data < size_.data; ++at.data) peers.push_back(this->rank(at));
  return peers;
}

std::vector<int> RankGrid::tensor_peers(int rank) const {
  std::vector<int> peers;
  GridPosition at = position(rank);
  for (at.tensor = 0; at.tensor < size_.tensor; ++at.tensor) peers.push_back(this->rank(at));
  return peers;
}

std::vector<int> RankGrid::pipe_peers(int rank) const {
  std::vector<int> peers;
  GridPosition at = position(rank);
  for (at.pipe = 0; at.pipe < size_.pipe; ++at.pipe) peers.push_back(this->rank(at));
  return peers;
}

}  // namespace zeroth::comm
