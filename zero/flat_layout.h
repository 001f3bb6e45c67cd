// The layout of a unit's parameters in its flat buffer, and the range of it that each rank owns.
// Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optim/update_step.h"

namespace zeroth::zero {

// A GlobalTensor is the model's parameter that a slot holds: all of it, or a slice if ranks share a
// layer.
struct GlobalTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> begin;  // start of the slice per dimension; its sizes are the slot's
  int64_t max_numel = 0;       // elements of the largest slice that a rank holds; 0: of this one

  int64_t numel() const;
  // Returns whether it is a matrix; a norm's weight or a bias has at most one dimension.
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
  // shards stay equal, and every kernel can process a parameter group's range as one chunk
  // (optim::UpdateRule::kChunkAlignment).
  static constexpr int64_t kAlignment = 64;

  explicit FlatLayout(int num_shards) : num_shards_(num_shards) {}

  // Appends a parameter at the next aligned offset; slots have the same offsets on every rank.
  // `whole` is unset if the slot holds the full parameter.
  void add(std::string name, std::vector<int64_t> shape, std::optional<GlobalTensor> whole = {});

  const std::vector<Slot>& slots() const { return slots_; }
  int num_shards() const { return num_shards_; }
  // Returns the elements of the buffer, padded so that every shard has shard_numel() elements.
  int64_t numel() const { return shard_numel() * num_shards_; }
  int64_t shard_numel() const;
  Range shard(int index) const;
  // Returns the elements of parameters, without padding, on the rank that has the most.
  int64_t parameter_numel() const;
  // Cuts `range` into parameter group ranges, in order and relative to its first element:
  // neighboring parameters, with the padding after them, that are all matrices, which decay, or all
  // none.
  std::vector<optim::ParamGroupRange> param_group_ranges(const Range& range) const;
  // Returns one range per parameter of `range`, without padding, indexed like slots().
  std::vector<optim::ParamGroupRange> parameter_ranges(const Range& range) const;
  // Returns the part of slot `index` that lies in `range`, relative to the slot's first element;
  // empty if no part does.
  Range overlap(size_t index, const Range& range) const;

 private:
  int num_shards_;
  std::vector<Slot> slots_;
  int64_t used_ = 0;
};

}  // namespace zeroth::zero
