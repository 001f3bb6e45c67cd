// The full buffers of all units, of which the blocks' parameters are views.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "zero/buffer_pool.h"

namespace zeroth::zero {

struct Slot;
struct UnitPlan;

// Returns the view of a slot in its unit's flat buffer.
torch::Tensor slot_view(const torch::Tensor& flat, const Slot& slot);

class UnitBuffers {
 public:
  // Turns the plan's parameters into views. A kBeforeUse unit's buffer has no memory, others hold
  // zeros. `working`: see Unit::dtype().
  UnitBuffers(const UnitPlan& plan, torch::Dtype working, torch::Device device);

  // Returns the full buffer of the unit, [numel].
  const torch::Tensor& whole(size_t unit) const { return buffers_[unit].whole; }

  // Gives a kBeforeUse unit's buffer memory of the pool, with unspecified content.
  void allocate(size_t unit);
  // Makes such a buffer an alias of memory with another owner, which lasts until release().
  void alias_memory(size_t unit, void* memory);
  // Takes either memory away again.
  void release(size_t unit);

  // Return the elements of kBeforeUse units' buffers with memory now, and their maximum so far.
  int64_t live_elements() const { return live_elements_; }
  int64_t peak_live_elements() const { return peak_live_elements_; }
  // Returns the maximum bytes that the pool has used; they are kept for the next allocate().
  int64_t pooled_bytes() const { return pool_.allocated_bytes(); }

 private:
  struct UnitBuffer {
    torch::Tensor whole;
    bool aliased = false;  // the memory has another owner
  };

  void set_memory(size_t unit, c10::DataPtr memory);

  BufferPool pool_;
  std::vector<UnitBuffer> buffers_;
  int64_t live_elements_ = 0;
  int64_t peak_live_elements_ = 0;
};

}  // namespace zeroth::zero
