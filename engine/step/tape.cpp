#include "engine/step/tape.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace zeroth::engine {

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

torch::Tensor Tape::backward(size_t index, const torch::Tensor& dy) {
  Record record = std::move(records_[index]);
  records_[index] = {};
  if (!dy.defined() || !record.output.requires_grad()) return {};
  torch::autograd::backward({record.output}, {dy});
  return record.input.defined() ? record.input.grad() : torch::Tensor();
}

}  // namespace zeroth::engine
