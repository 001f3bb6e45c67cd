#include "configs/resolve.h"

#include "tests/configs/support.h"

namespace zeroth::configs::defaults_test {

TEST_CASE("a line for Trainer has its linear decay, and no decay of vectors without an optimizer") {
  FlagValues flags;
  flags.for_trainer = true;
  flags.warmup_steps = 5;
  CHECK(config_of("{}", flags).scheduler.hf.type == HfSchedule::Type::kLinear);
  CHECK(config_of("{}", flags).scheduler.hf.warmup_steps == 5);
  CHECK(config_of("{}", flags).optimizer.no_decay);
  CHECK(config_of("{}", flags).batch.micro_batch_size == 8);
  // transformers hands DeepSpeed's optimizer all parameters in one group.
  CHECK_FALSE(config_of(R"({"optimizer": {"type": "AdamW"}})", flags).optimizer.no_decay);
  CHECK(config_of(R"({"scheduler": {"type": "WarmupLR", "params": {}}})", flags).scheduler.kind ==
        SchedulerConfig::Kind::kWarmupLr);
  // Where nothing is trained, or no data given, nobody misses the length of the run.
  CHECK(error_of("{}", flags, {.hidden_size = 64}).empty());
  flags.no_decay = true;
  CHECK(config_of(R"({"optimizer": {"type": "AdamW"}})", flags).optimizer.no_decay);
  CHECK_FALSE(config_of("{}").optimizer.no_decay);
  CHECK(defaults_for(flags).epochs == 3);
  CHECK(defaults_for({}).epochs == 1);
}

}  // namespace zeroth::configs::defaults_test
