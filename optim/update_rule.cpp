#include "optim/update_rule.h"

#include "optim/host_rule.h"
#include "optim/tensor_rule.h"

namespace zeroth::optim {

UpdateRule::Step usual_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device) {
  if (device.is_cpu()) return std::make_unique<HostRule>(config);
  return make_tensor_rule(config);
}

}  // namespace zeroth::optim
