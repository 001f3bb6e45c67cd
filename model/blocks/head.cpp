#include "model/blocks/head.h"

#include "model/blocks/head_loss.h"
#include "model/blocks/linear.h"

namespace zeroth::model {

using torch::Tensor;

Head::Head(const ModelSpec& spec, const Tensor& tied_weight, int64_t max_logits)
    : Block("head"), max_logits_(max_logits) {
  norm_ =
      register_module("norm", std::make_shared<Norm>(spec.norm, spec.hidden_size, spec.norm_eps));
  weight_ = tied_weight.defined()
                ? tied_weight
                : torch::empty({spec.vocab_size, spec.hidden_size},
                               torch::dtype(torch::kFloat32).device(torch::kMeta));
  weight_ = register_parameter("weight", weight_);
}

Tensor Head::forward(const Tensor& x, const MicroBatch& batch) {
  const Tensor y = norm_->forward(x);
  if (!batch.targets.defined()) return project(y, weight_);
  HeadLossOptions options;
  options.divisor = batch.loss_divisor;
  options.max_logits = max_logits_;
  options.trained_rows = batch.trained_rows;
  // On the CPU memory is worth more than a quarter of these products.
  if (x.is_cuda()) options.gradient = batch.grad_scale;
  return head_loss(y.flatten(0, 1), weight_, batch.targets.flatten(), options);
}

}  // namespace zeroth::model
