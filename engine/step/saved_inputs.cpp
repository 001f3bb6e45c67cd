#include "engine/step/saved_inputs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "device/host_link.h"
#include "offload/staging_buffers.h"

namespace zeroth::engine {
namespace {

using device::StreamEvent;

class InputsInPlace final : public SavedInputs {
 public:
  explicit InputsInPlace(size_t num_blocks) : inputs_(num_blocks) {}

  void save(size_t block, const torch::Tensor& x) override { inputs_[block] = x; }
  void prefetch(size_t) override {}
  torch::Tensor restore(size_t block) override {
    return std::exchange(inputs_[block], torch::Tensor());
  }

 private:
  std::vector<torch::Tensor> inputs_;
};

class InputsOnCpu final : public SavedInputs {
 public:
  InputsOnCpu(size_t num_blocks, std::shared_ptr<device::HostLink> link)
      : inputs_(num_blocks), buffers_(std::move(link), torch::kCPU, 1) {}

  void save(size_t block, const torch::Tensor& x) override {
    discard(block);
    send(std::exchange(last_saved_, block));
    if (!x.defined()) return;
    const torch::Tensor values = x.detach().contiguous();
    inputs_[block] = {
        .device = values.device(), .values = values, .usable = copies().record_event()};
  }

  void prefetch(size_t block) override {
    OffloadedInput& input = inputs_[block];
    if (!input.buffer) return;
    const auto leaving = find_leaving(block);
    if (leaving != leaving_.end()) {  // the values are still on the device
      input.values = leaving->values;
      input.usable = leaving->end;
      leaving_.erase(leaving);
    } else {
      input.values = at::empty(input.buffer->values.sizes(),
                               input.buffer->values.options().device(input.device));
      // Earlier work of the current stream may still use the allocator's memory.
      buffers_.send(*input.buffer, input.values, copies().record_event());
      input.usable = input.buffer->free;
    }
    buffers_.release(*std::exchange(input.buffer, std::nullopt));
  }

  torch::Tensor restore(size_t block) override {
    prefetch(block);
    OffloadedInput input = std::exchange(inputs_[block], {});
    copies().wait_event(input.usable);
    return input.values;
  }

  std::vector<std::string> notes() const override { return buffers_.link().memory.notes(); }

 private:
  static constexpr size_t kMaxLeaving = 2;

  struct OffloadedInput {
    std::optional<offload::StagingBuffers::Buffer> buffer = {};  // unset once it comes back
    torch::Device device = torch::kCPU;                          // source device
    torch::Tensor values = {};  // set before it leaves and once it is back
    StreamEvent usable = {};    // after this event `values` are valid
  };
  struct LeavingInput {
    size_t block;
    torch::Tensor values;
    StreamEvent end;
  };

  std::deque<LeavingInput>::iterator find_leaving(size_t block) {
    return std::find_if(leaving_.begin(), leaving_.end(),
                        [block](const LeavingInput& leaving) { return leaving.block == block; });
  }

  device::CopyStream& copies() { return buffers_.copies(); }

  // Starts to offload an input that is still in place, if there is one. It waits for the next
  // save(), as backward begins with the last input.
  void send(size_t block) {
    OffloadedInput& input = inputs_[block];
    if (!input.values.defined()) return;
    input.buffer = buffers_.fetch(input.values, {input.usable});
    leaving_.push_back({block, std::exchange(input.values, {}), input.buffer->free});
    if (leaving_.size() <= kMaxLeaving) return;
    copies().wait_event(leaving_.front().end);
    leaving_.pop_front();
  }

  // Drops an input that a failed step has left.
  void discard(size_t block) {
    OffloadedInput old = std::exchange(inputs_[block], {});
    if (old.buffer) buffers_.release(std::move(*old.buffer));
    copies().wait_event(old.usable);
    const auto leaving = find_leaving(block);
    if (leaving == leaving_.end()) return;
    copies().wait_event(leaving->end);
    leaving_.erase(leaving);
  }

  std::vector<OffloadedInput> inputs_;  // [block]
  size_t last_saved_ = 0;               // block of the latest save()
  std::deque<LeavingInput> leaving_;
  offload::StagingBuffers buffers_;
};

}  // namespace

std::unique_ptr<SavedInputs> save_in_place(size_t num_blocks) {
  return std::make_unique<InputsInPlace>(num_blocks);
}

std::unique_ptr<SavedInputs> save_on_cpu(size_t num_blocks,
                                         std::shared_ptr<device::HostLink> link) {
  return std::make_unique<InputsOnCpu>(num_blocks, std::move(link));
}

std::unique_ptr<SavedInputs> make_saved_inputs(size_t num_blocks,
                                               const configs::RecomputeConfig& config,
                                               torch::Device device) {
  if (!config.cpu_checkpointing || device.is_cpu()) return save_in_place(num_blocks);
  return save_on_cpu(num_blocks, device::make_host_link(device, /*pin_memory=*/true));
}

}  // namespace zeroth::engine
