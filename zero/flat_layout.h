// The layout of a unit's parameters in its flat buffer, and the range of it that each rank owns.
// Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "optim/update_step.h"

namespace zeroth::zero {

// A GlobalSlice is the part of the model's parameter that a slot holds: all of it, unless ranks
// share a layer.
struct GlobalSlice {
  std::string name;  // of the parameter
  TensorSlice slice;
  int64_t max_numel = 0;  // elements of the largest slice that a rank holds; 0: of this one
};

struct Slot {
  std::string name;  // of the block's own tensor
  GlobalSlice global;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t numel = 0;

  const std::vector<int64_t>& shape() const { return global.slice.sizes; }
  // Returns whether the parameter is a matrix; a norm's weight or a bias has at most one dimension.
  bool is_matrix() const { return global.slice.shape.size() > 1; }
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

class FlatLayout {
 public:
  // Slots start and shards end at multiples of at least this many elements: vector loads stay
  // aligned, shards stay equal, and every kernel can process a parameter group's range as one chunk
  // (optim::UpdateRule::kChunkAlignment).
  static constexpr int64_t kAlignment = 64;

  // `alignment` is a multiple of kAlignment, at which slots start and shards end.
  explicit FlatLayout(int num_shards, int64_t alignment = kAlignment)
      : num_shards_(num_shards), alignment_(alignment) {}

  // Appends a slot, and sets its offset to the next aligned one, the same on every rank.
  void add(Slot slot);
  // Appends a slot that holds a full parameter of this name and shape.
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    add({name, {name, TensorSlice::full(shape)}});
  }

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
  int64_t alignment_;
  std::vector<Slot> slots_;
  int64_t used_ = 0;
};

}  // namespace zeroth::zero
