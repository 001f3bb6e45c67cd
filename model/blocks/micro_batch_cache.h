// MicroBatchCache: values that all layers compute alike from a tensor of a micro-batch.
#pragma once

#include <algorithm>
#include <list>
#include <utility>

#include "device/tensor.h"

namespace zeroth::model {

// A MicroBatchCache has a value for each micro-batch in flight. A tensor is known by its identity,
// and its values must not change. Not thread-safe.
template <typename Value>
class MicroBatchCache {
 public:
  // Returns the value that was added for the tensor, or null.
  const Value* find(const torch::Tensor& tensor) const {
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.tensor.is_same(tensor); });
    return found == entries_.end() ? nullptr : &found->value;
  }

  // Adds or replaces a value. Drops those of micro-batches that have ended, whose tensors nothing
  // else holds.
  const Value& add(const torch::Tensor& tensor, Value value) {
    std::erase_if(entries_, [&](const Entry& entry) {
      return entry.tensor.is_same(tensor) || entry.tensor.use_count() == 1;
    });
    return entries_.emplace_back(Entry{tensor, std::move(value)}).value;
  }

 private:
  struct Entry {
    torch::Tensor tensor;
    Value value;
  };
  std::list<Entry> entries_;
};

}  // namespace zeroth::model
