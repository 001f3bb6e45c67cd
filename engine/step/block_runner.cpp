#include "engine/step/block_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/step/step_profiler.h"

namespace zeroth::engine {
namespace {

// EvalModeGuard keeps a block's modules in evaluation mode while it exists: torch's own modules,
// such as Dropout, do not use sample_seeds.
class EvalModeGuard {
 public:
  explicit EvalModeGuard(model::Block& block) : modules_(block.modules()) {
    for (const auto& module : modules_) were_training_.push_back(module->is_training());
    block.eval();
  }
  // Restores each module's mode. Modules come before their submodules, which train() also sets.
  ~EvalModeGuard() {
    for (size_t i = 0; i < modules_.size(); ++i) modules_[i]->train(were_training_[i]);
  }
  EvalModeGuard(const EvalModeGuard&) = delete;
  EvalModeGuard& operator=(const EvalModeGuard&) = delete;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> were_training_;
};

// Returns the next segment from which backward needs a saved input, or the end.
ModelChunk::const_reverse_iterator find_saved(ModelChunk::const_reverse_iterator next,
                                              ModelChunk::const_reverse_iterator end) {
  const auto kept = std::ranges::find_if(next, end, &Segment::recompute);
  return kept != end && kept->trained ? kept : end;
}

}  // namespace

torch::Tensor BlockRunner::forward(const ModelChunk& chunk, torch::Tensor x,
                                   const model::MicroBatch& batch, Tape& tape) {
  if (timer_ != nullptr) timer_->begin();
  for (const Segment& segment : chunk) x = run_forward(segment, std::move(x), batch, tape);
  position_ = {};
  return x;
}

torch::Tensor BlockRunner::run_forward(const Segment& segment, torch::Tensor x,
                                       const model::MicroBatch& batch, Tape& tape) {
  if (segment.recompute) tape.offload(segment.first, x);
  for (size_t i = segment.first; i < segment.end; ++i) {
    set_position(i, "forward");
    const double updates = params_.pending_update_seconds();
    const zero::Lease lease = params_.gather(i);
    const bool keeps_graph = segment.trained && !segment.recompute;
    x = keeps_graph ? tape.forward(*blocks_[i], i, x, batch)
                    : tape.forward_without_graph(*blocks_[i], x, batch);
    record_time(i, params_.pending_update_seconds() - updates);  // see StepTimes::update
    if (inspecting_ && i < first_bad_output_.value_or(blocks_.size()) &&
        !at::isfinite(x).all().item<bool>()) {
      first_bad_output_ = i;
    }
  }
  return x;
}

torch::Tensor BlockRunner::evaluate(const ModelChunk& chunk, torch::Tensor x,
                                    const model::MicroBatch& batch) {
  const torch::NoGradGuard no_grad;
  for (size_t i = chunk.front().first; i < chunk.back().end; ++i) {
    set_position(i, "evaluation");
    const zero::Lease lease = params_.gather(i);
    const EvalModeGuard eval_mode(*blocks_[i]);
    x = blocks_[i]->forward(x, batch);
  }
  position_ = {};
  return x;
}

torch::Tensor BlockRunner::backward(const ModelChunk& chunk, PipeOpKind kind, torch::Tensor dy,
                                    const model::MicroBatch& batch, Tape& tape,
                                    const std::function<void()>& prefetch_next) {
  if (timer_ != nullptr) timer_->begin();
  for (auto segment = chunk.rbegin(); segment != chunk.rend(); ++segment) {
    if (!segment->trained) break;
    if (segment->recompute) tape.restore(segment->first);
    const auto kept = find_saved(segment + 1, chunk.rend());
    if (kept != chunk.rend()) {
      tape.prefetch(kept->first);
    } else if (prefetch_next) {
      prefetch_next();
    }
    if (segment->recompute) recompute_segment(*segment, batch, tape);
    for (size_t i = segment->end; i-- > segment->first;) {
      set_position(i, "backward");
      const zero::Lease lease = params_.gather(i);
      if (segment->recompute && i + 1 == segment->end) {  // shares the gather of its backward
        tape.forward(*blocks_[i], i, tape.input(i), batch);
      }
      if (delivers_gradients(kind, i, blocks_.size())) {
        grads_.open(i);
        dy = tape.backward(i, dy);
        grads_.add(i);
      } else {
        dy = tape.backward_input(i, *blocks_[i], dy);
      }
      record_time(blocks_.size() + i);
    }
  }
  position_ = {};
  return dy;
}

void BlockRunner::backward_weight(const ModelChunk& chunk, Tape& tape) {
  if (timer_ != nullptr) timer_->begin();
  for_each_backward(chunk, [&](const Segment& segment) {
    for (size_t i = segment.end; i-- > segment.first;) {
      if (!delivers_gradients(PipeOpKind::kBackwardWeight, i, blocks_.size())) continue;
      set_position(i, "backward of the weights");
      grads_.open(i);
      tape.deliver_gradients(i);
      grads_.add(i);
      record_time(blocks_.size() + i);
    }
  });
  position_ = {};
}

void BlockRunner::for_each_gathered(const char* operation,
                                    const std::function<void(size_t block)>& visit) {
  std::vector<size_t> held;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (params_.holds(i)) held.push_back(i);
  }
  params_.set_access_order(std::move(held));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    set_position(i, operation);
    zero::Lease lease;
    if (params_.holds(i)) lease = params_.gather(i);
    visit(i);
  }
  position_ = {};
  params_.set_access_order({});
}

std::string BlockRunner::current_operation() const {
  return position_.operation == nullptr ? ""
                                        : fmt::format("{} of block {}", position_.operation,
                                                      blocks_[position_.block]->label());
}

void BlockRunner::prefetch_input(const ModelChunk& chunk, Tape& tape) {
  const auto kept = find_saved(chunk.rbegin(), chunk.rend());
  if (kept != chunk.rend()) tape.prefetch(kept->first);
}

// Rebuilds the graphs of all blocks of the segment except the last, whose own input it leaves on
// the tape.
void BlockRunner::recompute_segment(const Segment& segment, const model::MicroBatch& batch,
                                    Tape& tape) {
  for (size_t i = segment.first; i + 1 < segment.end; ++i) {
    set_position(i, "recompute");
    const zero::Lease lease = params_.gather(i);
    tape.keep_input(i + 1, tape.forward(*blocks_[i], i, tape.input(i), batch));
    record_time(blocks_.size() + i);
  }
}

void BlockRunner::record_time(size_t part, double excluded_seconds) const {
  if (timer_ != nullptr) timer_->end_phase(part, excluded_seconds);
}

}  // namespace zeroth::engine
