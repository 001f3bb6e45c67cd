#include "engine/kept_inputs.h"

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

using device::Point;

class InPlace final : public KeptInputs {
 public:
  explicit InPlace(size_t num_blocks) : inputs_(num_blocks) {}

  void keep(size_t block, const torch::Tensor& x) override { inputs_[block] = x; }
  void expect(size_t) override {}
  torch::Tensor take(size_t block) override {
    return std::exchange(inputs_[block], torch::Tensor());
  }

 private:
  std::vector<torch::Tensor> inputs_;
};

class OnHost final : public KeptInputs {
 public:
  OnHost(size_t num_blocks, std::shared_ptr<device::HostLink> link)
      : inputs_(num_blocks), buffers_(std::move(link), torch::kCPU, 1) {}

  void keep(size_t block, const torch::Tensor& x) override {
    drop(block);
    send(std::exchange(last_, block));
    if (!x.defined()) return;
    const torch::Tensor values = x.detach().contiguous();
    inputs_[block] = {.device = values.device(), .values = values, .usable = copies().now()};
  }

  void expect(size_t block) override {
    Input& input = inputs_[block];
    if (!input.buffer) return;
    const auto leaving = find_leaving(block);
    if (leaving != leaving_.end()) {  // it need not come back
      input.values = leaving->values;
      input.usable = leaving->end;
      leaving_.erase(leaving);
    } else {
      input.values = at::empty(input.buffer->values.sizes(),
                               input.buffer->values.options().device(input.device));
      // The allocator's memory may be in use by earlier work of the current stream.
      buffers_.send(*input.buffer, input.values, copies().now());
      input.usable = input.buffer->free;
    }
    buffers_.give(*std::exchange(input.buffer, std::nullopt));
  }

  torch::Tensor take(size_t block) override {
    expect(block);
    Input input = std::exchange(inputs_[block], {});
    copies().order(input.usable);
    return input.values;
  }

  std::vector<std::string> notes() const override { return buffers_.link().memory.notes(); }

 private:
  static constexpr size_t kLeaving = 2;

  struct Input {
    std::optional<offload::StagingBuffers::Buffer> buffer = {};  // until it is on its way back
    torch::Device device = torch::kCPU;                          // from which it left
    torch::Tensor values = {};  // before it leaves and when it is back
    Point usable = {};          // behind it they are there
  };
  struct Leaving {
    size_t block;
    torch::Tensor values;
    Point end;
  };

  std::deque<Leaving>::iterator find_leaving(size_t block) {
    return std::find_if(leaving_.begin(), leaving_.end(),
                        [block](const Leaving& leaving) { return leaving.block == block; });
  }

  device::CopyStream& copies() { return buffers_.copies(); }

  // Begins the way of an input that is still in place, if there is one: only when another one
  // follows it, as backward begins with the last one.
  void send(size_t block) {
    Input& input = inputs_[block];
    if (!input.values.defined()) return;
    input.buffer = buffers_.fetch(input.values, {input.usable});
    leaving_.push_back({block, std::exchange(input.values, {}), input.buffer->free});
    if (leaving_.size() <= kLeaving) return;
    copies().order(leaving_.front().end);
    leaving_.pop_front();
  }

  // After a step that failed there may be one.
  void drop(size_t block) {
    Input old = std::exchange(inputs_[block], {});
    if (old.buffer) buffers_.give(std::move(*old.buffer));
    copies().order(old.usable);
    const auto leaving = find_leaving(block);
    if (leaving == leaving_.end()) return;
    copies().order(leaving->end);
    leaving_.erase(leaving);
  }

  std::vector<Input> inputs_;  // [block]
  size_t last_ = 0;            // the block whose input was kept last
  std::deque<Leaving> leaving_;
  offload::StagingBuffers buffers_;
};

}  // namespace

std::unique_ptr<KeptInputs> keep_in_place(size_t num_blocks) {
  return std::make_unique<InPlace>(num_blocks);
}

std::unique_ptr<KeptInputs> keep_on_host(size_t num_blocks,
                                         std::shared_ptr<device::HostLink> link) {
  return std::make_unique<OnHost>(num_blocks, std::move(link));
}

std::unique_ptr<KeptInputs> make_kept_inputs(size_t num_blocks,
                                             const configs::RecomputeConfig& config,
                                             torch::Device device) {
  if (!config.cpu_checkpointing || device.is_cpu()) return keep_in_place(num_blocks);
  return keep_on_host(num_blocks, device::make_host_link(device, /*pin_memory=*/true));
}

}  // namespace zeroth::engine
