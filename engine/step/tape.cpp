#include "engine/step/tape.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "offload/staging.h"

namespace zeroth::engine {
namespace {

using device::StreamEvent;

class InputsOnCpu final : public SavedInputs {
 public:
  InputsOnCpu(size_t num_inputs, std::shared_ptr<device::HostLink> link)
      : inputs_(num_inputs), buffers_(std::move(link), torch::kCPU, 1) {}

  void save(size_t index, const torch::Tensor& x) override {
    discard(index);
    send(std::exchange(last_saved_, index));
    if (!x.defined()) return;
    const torch::Tensor values = x.detach().contiguous();
    inputs_[index] = {
        .device = values.device(), .values = values, .usable = copies().record_event()};
  }

  void prefetch(size_t index) override {
    OffloadedInput& input = inputs_[index];
    if (!input.buffer) return;
    const auto leaving = find_leaving(index);
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

  torch::Tensor restore(size_t index) override {
    prefetch(index);
    OffloadedInput input = std::exchange(inputs_[index], {});
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
    size_t index;
    torch::Tensor values;
    StreamEvent end;
  };

  std::deque<LeavingInput>::iterator find_leaving(size_t index) {
    return std::ranges::find(leaving_, index, &LeavingInput::index);
  }

  device::CopyStream& copies() { return buffers_.copies(); }

  // Starts to offload an input that is still in place, if there is one. It waits for the next
  // save(), as backward begins with the last input.
  void send(size_t index) {
    OffloadedInput& input = inputs_[index];
    if (!input.values.defined()) return;
    input.buffer = buffers_.fetch(input.values, {input.usable});
    leaving_.push_back({index, std::exchange(input.values, {}), input.buffer->free});
    if (leaving_.size() <= kMaxLeaving) return;
    copies().wait_event(leaving_.front().end);
    leaving_.pop_front();
  }

  // Drops an input that a failed step has left.
  void discard(size_t index) {
    OffloadedInput old = std::exchange(inputs_[index], {});
    if (old.buffer) buffers_.release(std::move(*old.buffer));
    copies().wait_event(old.usable);
    const auto leaving = find_leaving(index);
    if (leaving == leaving_.end()) return;
    copies().wait_event(leaving->end);
    leaving_.erase(leaving);
  }

  std::vector<OffloadedInput> inputs_;  // [index]
  size_t last_saved_ = 0;               // index of the latest save()
  std::deque<LeavingInput> leaving_;
  offload::StagingBuffers buffers_;
};

}  // namespace

std::unique_ptr<SavedInputs> save_on_cpu(size_t num_inputs,
                                         std::shared_ptr<device::HostLink> link) {
  return std::make_unique<InputsOnCpu>(num_inputs, std::move(link));
}

std::unique_ptr<SavedInputs> make_saved_inputs(size_t num_inputs,
                                               const configs::RecomputeConfig& config,
                                               torch::Device device) {
  if (!config.cpu_checkpointing || device.is_cpu()) return nullptr;
  return save_on_cpu(num_inputs, device::make_host_link(device, /*pin_memory=*/true));
}

torch::Tensor Tape::forward(model::Block& block, size_t index, const torch::Tensor& x,
                            const model::MicroBatch& batch) {
  const torch::AutoGradMode with_grad(true);
  Record& record = records_[index];
  record.input = x.defined() ? x.detach() : x;
  if (x.defined() && index >= first_with_input_gradient_) record.input.requires_grad_();
  record.output = block.forward(record.input, batch);
  return record.output.detach();
}

torch::Tensor Tape::forward_without_graph(model::Block& block, const torch::Tensor& x,
                                          const model::MicroBatch& batch) {
  const torch::NoGradGuard no_grad;
  return block.forward(x, batch);
}

void Tape::offload(size_t index, const torch::Tensor& x) {
  if (saved_inputs_ == nullptr) return keep_input(index, x);
  saved_inputs_->save(first_saved_ + index, x);
}

void Tape::prefetch(size_t index) {
  if (saved_inputs_ != nullptr) saved_inputs_->prefetch(first_saved_ + index);
}

void Tape::restore(size_t index) {
  if (saved_inputs_ != nullptr) keep_input(index, saved_inputs_->restore(first_saved_ + index));
}

torch::Tensor Tape::backward(size_t index, const torch::Tensor& dy) {
  const Record record = std::exchange(records_[index], {});
  if (!dy.defined() || !record.output.requires_grad()) return {};
  torch::autograd::backward({record.output}, {dy});
  return record.input.defined() ? record.input.grad() : torch::Tensor();
}

torch::Tensor Tape::backward_input(size_t index, model::Block& block, const torch::Tensor& dy) {
  const std::vector<torch::Tensor> parameters = block.parameters();
  model::DeferredGrads& deferred = records_[index].deferred;
  const torch::Tensor input = std::exchange(records_[index].input, {}),
                      output = std::exchange(records_[index].output, {});
  const bool flows = dy.defined() && output.requires_grad();
  deferred.begin(parameters, block.accumulates_grads());
  try {
    if (flows) torch::autograd::backward({output}, {dy});
  } catch (...) {
    deferred.end(parameters);  // no mark outlives what it points to
    throw;
  }
  deferred.end(parameters);
  return flows && input.defined() ? input.grad() : torch::Tensor();
}

}  // namespace zeroth::engine
