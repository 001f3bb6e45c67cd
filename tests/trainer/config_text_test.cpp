#include "trainer/report/config_text.h"

#include <doctest/doctest.h>

#include "configs/resolve.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::config_text_test {

TEST_CASE(
    "what has no key in the configuration is printed as flags in comments, and all loads back") {
  RunPlan plan;
  plan.config.batch = {.train_batch_size = 8, .micro_batch_size = 4, .accumulation_steps = 2};
  plan.config.seed = 7;
  plan.samples.seq_len = 64;
  CHECK_FALSE(has(config_text(plan), "--steps"));
  CHECK_FALSE(has(config_text(plan), "--gradient-checkpointing"));
  plan.samples.total_steps = 20;
  plan.config.recompute.every_nth_block = 2;
  const std::string text = config_text(plan);
  for (const char* line :
       {"// --seed 7 ", "// --seq-len 64 ", "// --steps 20 ", "// --gradient-checkpointing=2 ",
        "// --loss-mean token ", "// --on-non-finite skip "}) {
    CHECK_MESSAGE(has(text, line), text);
  }
  const auto again =
      configs::resolve(configs::parse_text(text, "printed"), {}, {.total_steps = 20});
  CHECK(again.config.batch.train_batch_size == 8);
  CHECK(again.config.batch.accumulation_steps == 2);
}

TEST_CASE("a buffer size that the file leaves out is printed as what the model needs") {
  RunPlan plan;
  plan.config.zero.offload_param.buffer_size_elements = configs::kBufferSizeAsNeeded;
  CHECK(has(config_text(plan), "\"buffer_size\": null"));
  plan.estimate.param_buffer_elements = 811776;
  const std::string text = config_text(plan);
  const size_t at = text.find("\"buffer_size\": 811776,");
  REQUIRE(at != std::string::npos);
  CHECK(has(text.substr(at, text.find('\n', at) - at), "// the model's largest shard"));
  plan.config.zero.offload_param.buffer_size_elements = 900000;
  CHECK(has(config_text(plan), "\"buffer_size\": 900000,"));
}

TEST_CASE("every printed value says where it comes from") {
  RunPlan plan;
  plan.flags.values.seed = 7;
  plan.config.seed = 7;
  plan.samples.seq_len = 64;
  plan.spec.attention_dropout = 0.1;
  plan.origins = {{"gradient_clipping", "file"}, {"optimizer.params.lr", "auto: --lr"}};
  std::string text;
  for (const char c : config_text(plan)) {  // columns one blank apart
    if (c != ' ' || text.empty() || text.back() != ' ') text += c;
  }
  for (const char* line :
       {"// --seed 7 command line\n", "// --seq-len 64 model\n",
        "// --dropout 0.1 maximum of the model\n", "// --loss-mean token default\n",
        "\"gradient_clipping\": 1.0, // file\n", "// auto: --lr\n"}) {
    CHECK_MESSAGE(has(text, line), text);
  }
}

}  // namespace zeroth::trainer::config_text_test
