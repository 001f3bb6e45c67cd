#include "trainer/config_text.h"

#include <doctest/doctest.h>

#include "configs/loader.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {

TEST_CASE(
    "what has no key in the configuration is printed as flags in comments, and all loads back") {
  RunPlan plan;
  plan.config.batch = {.train_batch_size = 8, .micro_batch_size = 4, .accumulation_steps = 2};
  plan.config.seed = 7;
  plan.seq_len = 64;
  CHECK_FALSE(has(config_text(plan), "--steps"));
  CHECK_FALSE(has(config_text(plan), "--gradient-checkpointing"));
  plan.total_steps = 20;
  plan.config.recompute.every_nth_block = 2;
  const std::string text = config_text(plan);
  for (const char* line : {"// --seed 7\n", "// --seq-len 64\n", "// --steps 20\n",
                           "// --gradient-checkpointing=2\n"}) {
    CHECK_MESSAGE(has(text, line), text);
  }
  const auto again =
      configs::resolve(configs::parse_text(text, "printed"), {}, {.total_steps = 20});
  CHECK(again.config.batch.train_batch_size == 8);
  CHECK(again.config.batch.accumulation_steps == 2);
}

}  // namespace zeroth::trainer
