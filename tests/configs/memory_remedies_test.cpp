#include "configs/memory_remedies.h"

#include <doctest/doctest.h>

namespace zeroth::configs {
namespace {

bool any_has(const std::vector<std::string>& remedies, std::string_view part) {
  for (const std::string& remedy : remedies) {
    if (remedy.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("remedies fit the configuration, the cheapest first") {
  Config config;
  config.batch = {.train_batch_size = 72, .micro_batch_size = 9, .accumulation_steps = 4};
  const auto remedies = memory_remedies(config, {.world_size = 2, .seq_len = 64});
  REQUIRE(remedies.size() == 3);
  CHECK(remedies[0] ==
        "--micro-batch 3 with --accumulation 12 in place of 9 and 4: the same global batch");
  CHECK(any_has(remedies, "--gradient-checkpointing"));
  CHECK(any_has(remedies, "zero_optimization.stage 2 in place of 0"));
}

TEST_CASE("what is done already is not offered, and there are always three") {
  Config config;
  config.zero.stage = 2;
  config.recompute.every_nth_block = 1;
  auto remedies = memory_remedies(config, {.world_size = 2, .seq_len = 64});
  REQUIRE(remedies.size() == 3);
  CHECK(any_has(remedies, "zero_optimization.stage 3 in place of 2"));
  CHECK(any_has(remedies, "--bf16"));
  CHECK(any_has(remedies, "--seq-len 32 in place of 64"));
  config.zero.stage = 3;
  config.precision = Precision::kBf16;
  remedies = memory_remedies(config, {.world_size = 2, .seq_len = 1});
  CHECK(remedies.size() == 3);
  CHECK_FALSE(any_has(remedies, "micro-batch"));
  CHECK_FALSE(any_has(remedies, "zero_optimization.stage 3 in place"));
}

TEST_CASE("an evaluation has no gradients to shard and nothing to recompute") {
  Config config;
  config.batch.micro_batch_size = 8;
  const auto remedies = memory_remedies(config, {.world_size = 2, .seq_len = 64, .trains = false});
  CHECK(any_has(remedies, "--eval-micro-batch 4 in place of 8"));
  CHECK(any_has(remedies, "zero_optimization.stage 3 in place of 0"));
  CHECK_FALSE(any_has(remedies, "checkpointing"));
}

}  // namespace zeroth::configs
