// The whole buffers of all units, of which the blocks' parameters are views.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "zero/buffer_pool.h"
#include "zero/unit.h"

namespace zeroth::zero {

class UnitBuffers {
 public:
  // Turns the plan's parameters into views. A kBeforeUse unit's buffer has no memory, others hold
  // zeros. Keeps a reference to `plan`.
  UnitBuffers(const UnitPlan& plan, torch::Dtype dtype, torch::Device device);

  // [numel] of the unit.
  const torch::Tensor& whole(size_t unit) const { return buffers_[unit].whole; }

  // Gives a kBeforeUse unit's buffer memory of the pool, with unspecified content ...
  void allocate(size_t unit);
  // ... or memory that others own and that lasts until release().
  void alias_memory(size_t unit, void* memory);
  // Takes either away again.
  void release(size_t unit);

  // Elements of kBeforeUse units' buffers with memory now, and the most there ever were.
  int64_t live_elements() const { return live_elements_; }
  int64_t peak_live_elements() const { return peak_live_elements_; }
  // Bytes that the pool took at most; they are kept for the next allocate().
  int64_t pooled_bytes() const { return pool_.allocated_bytes(); }
  // Bytes of the buffers that are never released.
  int64_t persistent_bytes() const;

 private:
  struct UnitBuffer {
    torch::Tensor whole;
    bool aliased = false;  // others own the memory
  };

  void bind_parameters(size_t unit);
  void set_memory(size_t unit, c10::DataPtr memory);

  const UnitPlan& plan_;
  BufferPool pool_;
  std::vector<UnitBuffer> buffers_;
  int64_t live_elements_ = 0;
  int64_t peak_live_elements_ = 0;
};

}  // namespace zeroth::zero
