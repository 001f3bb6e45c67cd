#include "trainer/flag_rules.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {

TEST_CASE("the configuration is named in Hugging Face's way and in DeepSpeed's") {
  CHECK(parse("--deepspeed ds.json").config == "ds.json");
  CHECK(parse("--deepspeed_config ds.json").config == "ds.json");
  CHECK(parse("--deepspeed --deepspeed_config ds.json").config == "ds.json");
  CHECK(has(complaint("--deepspeed"), "--deepspeed needs the name"));
  CHECK(has(complaint("--deepspeed a --deepspeed_config b"), "give one of them"));
}

TEST_CASE("recompute takes every block unless a number follows") {
  CHECK(parse("--gradient-checkpointing").values.gradient_checkpointing == 1);
  CHECK(parse("--gradient-checkpointing=3").values.gradient_checkpointing == 3);
  CHECK(has(complaint("--gradient-checkpointing=0"), "above 0"));
  CHECK(has(complaint("--gradient-checkpointing=two"), "two"));
}

TEST_CASE("flags that contradict each other are refused") {
  CHECK(has(complaint("--steps 3 --epochs 1"), "--steps and --epochs"));
  CHECK(has(complaint("--bf16 --fp32"), "--bf16, --fp16 and --fp32 exclude each other"));
  CHECK(has(complaint("--prompt-field q"), "given together"));
  CHECK(has(complaint("--overwrite"), "--overwrite needs --output"));
  CHECK(has(complaint("--eval-only --steps 3"), "leave --steps out"));
  CHECK(has(complaint("--eval-only --output o"), "leave --output out"));
  CHECK(has(complaint("--max-eval-samples 3"), "needs --eval-data"));
}

TEST_CASE("counts must be above 0 and the seed not below it") {
  CHECK(has(complaint("--steps 0"), "--steps 0: must be above 0"));
  CHECK(has(complaint("--epochs -1"), "--epochs -1: must be above 0"));
  CHECK(has(complaint("--epochs nan"), "--epochs nan: must be above 0"));
  CHECK(has(complaint("--seq-len -5"), "--seq-len -5: must be above 0"));
  CHECK(has(complaint("--seed -1"), "--seed -1: must be at least 0"));
}

TEST_CASE("evaluation alone takes its data from either flag") {
  CHECK(parse_line("--model m --eval-only --data d").eval_only);
  CHECK(parse_line("--model m --eval-only --eval-data e").eval_data == "e");
  CHECK(has(complaint_line("--model m --eval-only"), "--data is missing"));
}

TEST_CASE("printing the configuration needs no data") {
  CHECK(parse_line("--model m --print-config").print_config);
  CHECK(has(complaint_line("--model m"), "--data is missing"));
}

}  // namespace zeroth::trainer
