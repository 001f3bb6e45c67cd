#include "engine/block_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace zeroth::engine {
namespace {

// A block's modules are in evaluation while it lives: torch's own, as Dropout, know no row_seeds.
class Evaluating {
 public:
  explicit Evaluating(model::Block& block) : modules_(block.modules()) {
    for (const auto& module : modules_) were_training_.push_back(module->is_training());
    block.eval();
  }
  // Each as it was: modules come before those in them, which train() sets too.
  ~Evaluating() {
    for (size_t i = 0; i < modules_.size(); ++i) modules_[i]->train(were_training_[i]);
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> were_training_;
};

}  // namespace

torch::Tensor BlockRunner::forward(const model::MicroBatch& batch, Tape& tape) {
  begin_laps();
  torch::Tensor x;
  for (const Segment& segment : segments_) x = run_forward(segment, x, batch, tape);
  at_ = {};
  return x;
}

torch::Tensor BlockRunner::run_forward(const Segment& segment, torch::Tensor x,
                                       const model::MicroBatch& batch, Tape& tape) {
  if (segment.recompute) tape.put_away(segment.first, x);
  for (size_t i = segment.first; i < segment.end; ++i) {
    at(i, "forward");
    const double updates = params_.waiting_update_seconds();
    const zero::Lease lease = params_.gather(i);
    const bool keeps_graph = segment.trained && !segment.recompute;
    x = keeps_graph ? tape.forward(*blocks_[i], i, x, batch)
                    : tape.forward_without_graph(*blocks_[i], x, batch);
    lap(i, params_.waiting_update_seconds() - updates);  // as StepTimes has them
    if (inspecting_) inspect(i, x);
  }
  return x;
}

torch::Tensor BlockRunner::evaluate(const model::MicroBatch& batch,
                                    const std::function<bool()>& ends) {
  const torch::NoGradGuard no_grad;
  torch::Tensor x;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    at(i, "evaluation");
    if (ends()) {
      x = torch::Tensor();
      break;
    }
    const zero::Lease lease = params_.gather(i);
    const Evaluating evaluating(*blocks_[i]);
    x = blocks_[i]->forward(x, batch);
  }
  at_ = {};
  return x;
}

void BlockRunner::backward(const model::MicroBatch& batch, bool last, Tape& tape) {
  begin_laps();
  torch::Tensor dy = batch.loss_gradient;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (!segment->trained) break;
    if (segment->recompute) tape.bring_back(segment->first);
    expect_input(segment + 1, tape);
    if (segment->recompute) run_again(*segment, batch, tape);
    for (size_t i = segment->end; i-- > segment->first;) {
      at(i, "backward");
      const zero::Lease lease = params_.gather(i);
      if (segment->recompute && i + 1 == segment->end) {  // shares the gather of its backward
        tape.forward(*blocks_[i], i, tape.input(i), batch);
      }
      grads_.open(i);
      dy = tape.backward(i, dy);
      grads_.add(i, last);
      lap(blocks_.size() + i);
    }
  }
  at_ = {};
}

std::string BlockRunner::doing() const {
  return at_.way == nullptr ? ""
                            : fmt::format("{} of block {}", at_.way, blocks_[at_.block]->label());
}

// The next input that backward brings back comes while it works on another segment.
void BlockRunner::expect_input(std::vector<Segment>::const_reverse_iterator next, Tape& tape) {
  const auto kept = std::find_if(next, segments_.rend(),
                                 [](const Segment& segment) { return segment.recompute; });
  if (kept != segments_.rend() && kept->trained) tape.coming_back(kept->first);
}

// Rebuilds the graphs of all blocks of the segment but the last, whose own input it leaves on the
// tape.
void BlockRunner::run_again(const Segment& segment, const model::MicroBatch& batch, Tape& tape) {
  for (size_t i = segment.first; i + 1 < segment.end; ++i) {
    at(i, "recompute");
    const zero::Lease lease = params_.gather(i);
    tape.keep_input(i + 1, tape.forward(*blocks_[i], i, tape.input(i), batch));
    lap(blocks_.size() + i);
  }
}

void BlockRunner::inspect(size_t block, const torch::Tensor& output) {
  if (first_bad_output_.value_or(blocks_.size()) <= block) return;
  if (!at::isfinite(output).all().item<bool>()) first_bad_output_ = block;
}

}  // namespace zeroth::engine
