#include "trainer/config_text.h"

#include <fmt/format.h>

#include "configs/loader.h"

namespace zeroth::trainer {

std::string config_text(const RunPlan& plan) {
  std::string text = "// Flags without a key here:\n";
  const auto add = [&](const char* flag, auto value) {
    text += fmt::format("// {}{}\n", flag, value);
  };
  add("--seed ", plan.config.seed);
  add("--seq-len ", plan.seq_len);
  if (plan.total_steps > 0) add("--steps ", plan.total_steps);
  const int64_t every = plan.config.recompute.every_nth_block;
  if (every > 0) add("--gradient-checkpointing=", every);
  return text + configs::to_json(plan.config) + "\n";
}

}  // namespace zeroth::trainer
