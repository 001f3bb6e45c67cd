// PairTable: a map from pairs of numbers below 2^31, filled once and read often. It uses open
// addressing, and is at most half full.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/machine/random_bytes.h"

namespace zeroth::data {

template <typename Value>
class PairTable {
 public:
  explicit PairTable(size_t count = 0)
      : slots_(std::bit_ceil(2 * count + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  // Sets a pair's value; a later value replaces an earlier one. At most `count` different pairs.
  void set(uint32_t left, uint32_t right, Value value) {
    slots_[slot_index(make_key(left, right))] = {make_key(left, right), value};
  }

  // Returns null if the pair was never set.
  const Value* find(uint32_t left, uint32_t right) const {
    const TableSlot& slot = slots_[slot_index(make_key(left, right))];
    return slot.key == kFree ? nullptr : &slot.value;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};

  struct TableSlot {
    uint64_t key = kFree;
    Value value{};
  };

  static uint64_t make_key(uint32_t left, uint32_t right) {
    return (static_cast<uint64_t>(left) << 32) | right;
  }

  // Returns the slot that holds the key, or would hold it.
  size_t slot_index(uint64_t key) const {
    size_t at = (key * factor_) >> shift_;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<TableSlot> slots_;
  int shift_;
  uint64_t factor_ = random_word() | 1;  // prevents files that choose pairs that collide
};

}  // namespace zeroth::data
