#include "optim/tensor_rule.h"

#include "base/error.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/rule_checks.h"
#include "optim/sgd.h"

namespace zeroth::optim {

void TensorRule::apply(const Chunk& chunk, const UpdateStep& step) const {
  check_arguments(*this, chunk, step);
  update({chunk.master, chunk.grad.to(torch::kFloat32), chunk.states, {}}, step);
  if (chunk.copy.defined()) torch::Tensor(chunk.copy).copy_(chunk.master);
}

std::unique_ptr<UpdateRule> make_tensor_rule(const configs::OptimizerConfig& config) {
  using Kind = configs::OptimizerConfig::Kind;
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam:
      return std::make_unique<Adam>(config);
    case Kind::kLion:
      return std::make_unique<Lion>();
    case Kind::kSgd:
      return std::make_unique<Sgd>(config);
    case Kind::kAdagrad:
      return std::make_unique<Adagrad>(config);
    case Kind::kLamb:
      return std::make_unique<Lamb>(config);
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

}  // namespace zeroth::optim
