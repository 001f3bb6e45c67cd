#include "optim/update_rule.h"

#include "base/error.h"
#include "optim/adam.h"

namespace zeroth::optim {

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config) {
  switch (config.kind) {
    case configs::OptimizerConfig::Kind::kAdamW:
    case configs::OptimizerConfig::Kind::kAdam:
      return std::make_unique<Adam>(config);
  }
  throw InternalError(fmt::format("optimizer kind {}", static_cast<int>(config.kind)));
}

}  // namespace zeroth::optim
