#include "optim/update_rule.h"

#include "base/error.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/lion.h"
#include "optim/sgd.h"

namespace zeroth::optim {

UpdateRule::Step usual_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config) {
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
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

}  // namespace zeroth::optim
