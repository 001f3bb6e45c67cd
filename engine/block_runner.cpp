#include "engine/block_runner.h"

namespace zeroth::engine {

torch::Tensor BlockRunner::forward(const model::MicroBatch& batch, Tape& tape) {
  torch::Tensor x;
  for (const Segment& segment : segments_) x = run_forward(segment, x, batch, tape);
  return x;
}

torch::Tensor BlockRunner::run_forward(const Segment& segment, torch::Tensor x,
                                       const model::MicroBatch& batch, Tape& tape) {
  if (segment.recompute) tape.keep_input(segment.first, x);
  for (size_t i = segment.first; i < segment.end; ++i) {
    const zero::Lease lease = params_.gather(i);
    x = segment.recompute ? tape.forward_without_graph(*blocks_[i], x, batch)
                          : tape.forward(*blocks_[i], i, x, batch);
    if (inspecting_) inspect(i, x);
  }
  return x;
}

torch::Tensor BlockRunner::evaluate(const model::MicroBatch& batch) {
  const torch::NoGradGuard no_grad;
  torch::Tensor x;
  for_each_gathered([&](size_t i) { x = blocks_[i]->forward(x, batch); });
  return x;
}

void BlockRunner::backward(const model::MicroBatch& batch, bool last, Tape& tape) {
  torch::Tensor dy = torch::full({}, batch.grad_scale, batch.tokens.options().dtype(torch::kFloat));
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (segment->recompute) run_again(*segment, batch, tape);
    for (size_t i = segment->end; i-- > segment->first;) {
      const zero::Lease lease = params_.gather(i);
      if (segment->recompute &&
          i + 1 == segment->end) {  // its graph shares the gather of its backward
        tape.forward(*blocks_[i], i, tape.input(i), batch);
      }
      grads_.open(i);
      dy = tape.backward(i, dy);
      grads_.add(i, last);
    }
  }
}

// Rebuilds the graphs of all blocks of the segment but the last, whose own input it leaves on the
// tape.
void BlockRunner::run_again(const Segment& segment, const model::MicroBatch& batch, Tape& tape) {
  for (size_t i = segment.first; i + 1 < segment.end; ++i) {
    const zero::Lease lease = params_.gather(i);
    tape.keep_input(i + 1, tape.forward(*blocks_[i], i, tape.input(i), batch));
  }
}

void BlockRunner::inspect(size_t block, const torch::Tensor& output) {
  if (first_bad_output_.value_or(blocks_.size()) <= block) return;
  if (!at::isfinite(output).all().item<bool>()) first_bad_output_ = block;
}

}  // namespace zeroth::engine
