// Where the parameters of a unit lie in its flat buffer, and which range of it a rank owns. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optim/update_step.h"

namespace zeroth::zero {

// The model's parameter that a slot holds: all of it, or a box where ranks share a layer.
struct GlobalTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> begin;  // of the box in each dimension; its extents are the slot's
  int64_t max_numel = 0;       // elements of the largest box that a rank holds; 0: of this one

  int64_t numel() const;
  // A matrix, as opposed to a norm's weight or a bias, which have at most one dimension.
  bool is_matrix() const { return shape.size() > 1; }
};

struct Slot {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t numel = 0;
  GlobalTensor global = {};
  bool is_matrix() const { return global.is_matrix(); }
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

class FlatLayout {
 public:
  // Slots start and shards end at multiples of this many elements: vector loads stay aligned,
  // shards stay equal, and a stretch is a tile to every kernel
  // (optim::UpdateRule::kChunkAlignment).
  static constexpr int64_t kAlignment = 64;

  explicit FlatLayout(int num_shards) : num_shards_(num_shards) {}

  // Appends a parameter; its slot begins at the next aligned offset, and the one behind it where it
  // does on every rank. `whole`: unset where the slot holds all of it.
  void add(std::string name, std::vector<int64_t> shape, std::optional<GlobalTensor> whole = {});

  const std::vector<Slot>& slots() const { return slots_; }
  int num_shards() const { return num_shards_; }
  // Elements of the buffer, padded so that every shard has shard_numel() elements.
  int64_t numel() const { return shard_numel() * num_shards_; }
  int64_t shard_numel() const;
  Range shard(int index) const;
  // Elements of parameters, without padding, on the rank that has the most.
  int64_t parameter_numel() const;
  // Cuts `range` into stretches, in order and counted from its first element: neighbouring
  // parameters, with the padding behind them, that are all matrices, which decay, or none.
  std::vector<optim::ParamGroupRange> param_group_ranges(const Range& range) const;
  // The same without padding, one for each parameter, which it counts as slots().
  std::vector<optim::ParamGroupRange> parameter_ranges(const Range& range) const;
  // The part of slot `index` that lies in `range`, counted from the slot's first element; empty
  // when none does.
  Range overlap(size_t index, const Range& range) const;

 private:
  int num_shards_;
  std::vector<Slot> slots_;
  int64_t used_ = 0;
};

}  // namespace zeroth::zero
