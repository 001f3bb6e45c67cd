#include "tests/configs/support.h"

namespace zeroth::configs {

TEST_CASE("fp16 and bf16 exclude each other") {
  CHECK(error_of(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})") ==
        "test.json: fp16.enabled and bf16.enabled are both true: switch one off");
}

TEST_CASE("window and floor of the loss scale are checked only while a dynamic scale is in use") {
  for (const char* key : {"loss_scale_window", "min_loss_scale"}) {
    for (const int value : {0, -1}) {
      const auto text = [&](const char* rest) {
        return fmt::format(R"({{"fp16": {{"{}": {}, {}}}}})", key, value, rest);
      };
      CHECK(error_of(text(R"("enabled": true)"))
                .find(fmt::format("fp16.{}: expected an integer > 0 for a dynamic loss scale, "
                                  "found {}",
                                  key, value)) != std::string::npos);
      CHECK(error_of(text(R"("enabled": false)")) == "");
      CHECK(error_of(text(R"("enabled": true, "loss_scale": 128)")) == "");
    }
  }
}

TEST_CASE("AdamW does not take adam_w_mode false") {
  CHECK(error_of(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})") ==
        "test.json: optimizer.params.adam_w_mode: false contradicts optimizer.type AdamW: write "
        "type Adam");
}

TEST_CASE("each schedule takes its own parameters") {
  CHECK(error_of(R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 5}}})") ==
        "test.json: scheduler.params.total_num_steps: WarmupLR takes no such value; it takes "
        "warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type");
  CHECK(error_of(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 5,
                     "warmup_max_lr": 1}}})") ==
        "test.json: scheduler.params.warmup_max_lr: WarmupCosineLR takes no such value; it takes "
        "total_num_steps, warmup_min_ratio, warmup_num_steps, warmup_type, cos_min_ratio");
  CHECK(error_of(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"cos_min_ratio": 0}}})") ==
        "test.json: 2 errors\n"
        "  scheduler.params.cos_min_ratio: WarmupDecayLR takes no such value; it takes "
        "total_num_steps, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type\n"
        "  scheduler.params.total_num_steps: missing; WarmupDecayLR needs a number or \"auto\" "
        "(the steps of the run)");
}

TEST_CASE("a schedule shorter than its warm-up is said") {
  CHECK(has_warning(resolve_text(R"({"scheduler": {"type": "WarmupDecayLR", "params":
                     {"total_num_steps": 100}}})"),
                    "the schedule has 100 steps, fewer than its warm-up of 1000"));
}

TEST_CASE("recompute is asked for in one way") {
  FlagValues flags;
  flags.gradient_checkpointing = 2;
  CHECK(error_of(R"({"activation_checkpointing": {"number_checkpoints": 4}})", flags)
            .find("4 in the file beside --gradient-checkpointing=2") != std::string::npos);
}

TEST_CASE("flags have the ranges of their keys") {
  FlagValues flags;
  flags.micro_batch = 0;
  flags.lr = -1;
  flags.betas = {0.9, 1.5};
  flags.warmup_steps = -2;
  flags.gradient_checkpointing = 0;
  flags.max_grad_norm = std::numeric_limits<double>::quiet_NaN();
  CHECK(error_of("{}", flags) ==
        "test.json: 6 errors\n"
        "  --micro-batch: expected 1..1000000, found 0\n"
        "  --lr: expected >= 0, found -1\n"
        "  --max-grad-norm: expected >= 0, found nan\n"
        "  --betas: expected [0, 1), found 1.5\n"
        "  --warmup-steps: expected >= 0, found -2\n"
        "  --gradient-checkpointing: expected >= 1, found 0");
}

}  // namespace zeroth::configs
