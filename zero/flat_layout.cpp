#include "zero/flat_layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::zero {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

void FlatLayout::add(Slot slot) {
  for (const int64_t extent : slot.shape()) {
    ZEROTH_CHECK(extent >= 0, "{} has extent {}", slot.name, extent);
  }
  slot.offset = round_up(used_, alignment_);
  slot.numel = slot.global.slice.elements();
  used_ = slot.offset + std::max(slot.numel, slot.global.max_numel);
  slots_.push_back(std::move(slot));
}

int64_t FlatLayout::shard_numel() const {
  // Parameters without elements have a shard too, because no collective is empty.
  const int64_t needed = slots_.empty() ? used_ : std::max<int64_t>(used_, 1);
  return round_up(needed, alignment_ * num_shards_) / num_shards_;
}

Range FlatLayout::shard(int index) const {
  ZEROTH_CHECK(index >= 0 && index < num_shards_, "shard {} of {}", index, num_shards_);
  return {index * shard_numel(), (index + 1) * shard_numel()};
}

int64_t FlatLayout::parameter_numel() const {
  int64_t numel = 0;
  for (const Slot& slot : slots_) numel += std::max(slot.numel, slot.global.max_numel);
  return numel;
}

std::vector<optim::ParamGroupRange> FlatLayout::param_group_ranges(const Range& range) const {
  std::vector<optim::ParamGroupRange> group_ranges;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t behind = i + 1 < slots_.size() ? slots_[i + 1].offset : numel();
    const int64_t begin = std::max(slots_[i].offset, range.begin) - range.begin;
    const int64_t end = std::min(behind, range.end) - range.begin;
    if (begin >= end) continue;
    if (!group_ranges.empty() && group_ranges.back().decays == slots_[i].is_matrix()) {
      group_ranges.back().end = end;
    } else {
      group_ranges.push_back({begin, end, slots_[i].is_matrix()});
    }
  }
  return group_ranges;
}

std::vector<optim::ParamGroupRange> FlatLayout::parameter_ranges(const Range& range) const {
  std::vector<optim::ParamGroupRange> group_ranges;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto [begin, end] = overlap(i, range);
    if (begin == end) continue;
    const int64_t shift = slots_[i].offset - range.begin;
    group_ranges.push_back(
        {begin + shift, end + shift, slots_[i].is_matrix(), static_cast<int64_t>(i)});
  }
  return group_ranges;
}

Range FlatLayout::overlap(size_t index, const Range& range) const {
  const Slot& slot = slots_.at(index);
  const int64_t begin = std::clamp(range.begin - slot.offset, int64_t{0}, slot.numel);
  const int64_t end = std::clamp(range.end - slot.offset, begin, slot.numel);
  return {begin, end};
}

}  // namespace zeroth::zero
