#include "tests/configs/support.h"

namespace zeroth::configs::validate_test {
namespace {

std::string zero(int stage, const std::string& allowed_keys) {
  return fmt::format(R"({{"zero_optimization": {{"stage": {}, {}}}}})", stage, allowed_keys);
}

std::string with_bf16(const std::string& bf16, int stage, const std::string& device) {
  return fmt::format(R"({{"bf16": {{{}}}, "zero_optimization": {{"stage": {},
                          "offload_optimizer": {{"device": "{}"}}}}}})",
                     bf16, stage, device);
}

}  // namespace

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
        "test.json: scheduler.params.total_num_steps: not supported by WarmupLR; supported: "
        "warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type");
  CHECK(error_of(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 5,
                     "warmup_max_lr": 1}}})") ==
        "test.json: scheduler.params.warmup_max_lr: not supported by WarmupCosineLR; supported: "
        "total_num_steps, warmup_min_ratio, warmup_num_steps, warmup_type, cos_min_ratio");
  CHECK(error_of(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"cos_min_ratio": 0}}})") ==
        "test.json: 2 errors\n"
        "  scheduler.params.cos_min_ratio: not supported by WarmupDecayLR; supported: "
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
            .find("4 in the file, but --gradient-checkpointing=2") != std::string::npos);
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

TEST_CASE("a file needs a folder") {
  for (const char* name : {"offload_optimizer", "offload_param"}) {
    const auto error = [&](const char* rest) {
      return error_of(zero(3, fmt::format(R"("{}": {{"device": "nvme"{}}})", name, rest)));
    };
    const std::string message = fmt::format(
        "test.json: zero_optimization.{0}.device: \"nvme\" needs zero_optimization.{0}.nvme_path, "
        "a folder on the disk to be used, found ",
        name);
    CHECK(error("") == message + "null");
    CHECK(error(R"(, "nvme_path": null)") == message + "null");
    CHECK(error(R"(, "nvme_path": "auto")") == message + "\"auto\"");
    CHECK(error(R"(, "nvme_path": "")") == message + "\"\"");
    CHECK(error(R"(, "nvme_path": "/tmp")") == "");
  }
}

TEST_CASE("parameters are offloaded at stage 3 only") {
  for (int stage = 0; stage < 3; ++stage) {
    for (const char* device : {"cpu", "nvme"}) {
      const Resolved resolved = resolve_text(zero(
          stage, fmt::format(R"("offload_param": {{"device": "{}", "buffer_count": 1}})", device)
                     .c_str()));
      CHECK(resolved.config.zero.offload_param.device == OffloadDevice::kNone);
      CHECK(warnings_of(resolved) ==
            std::vector<std::string>{
                fmt::format("zero_optimization.offload_param.device \"{}\" has no effect, as in "
                            "DeepSpeed: it needs zero_optimization.stage 3, found {}",
                            device, stage)});
    }
    CHECK(warnings_of(resolve_text(zero(stage, R"("offload_param": {"device": "none"})"))).empty());
  }
  CHECK(error_of(zero(3, R"("offload_param": {"device": "cpu"})")) == "");
  const std::string bad = error_of(zero(5, R"("offload_param": {"device": "cpu"})"));
  CHECK(bad.find("needs zero_optimization.stage") == std::string::npos);
}

TEST_CASE("buffers too few for the pipelines are an error that says how many work") {
  const auto error = [&](int count, bool read, bool write) {
    return error_of(zero(1, fmt::format(R"("offload_optimizer": {{"device": "nvme",
        "nvme_path": "/tmp", "buffer_count": {}, "pipeline_read": {}, "pipeline_write": {}}})",
                                        count, read, write)));
  };
  for (const bool read : {false, true}) {
    for (const bool write : {false, true}) {
      const int min_handles = 1 + read + write;
      CHECK(error(min_handles, read, write) == "");
      CHECK(error(min_handles - 1, read, write) ==
            fmt::format("test.json: zero_optimization.offload_optimizer.buffer_count: {} is too "
                        "small for zero_optimization.offload_optimizer.pipeline_read {} and "
                        "pipeline_write {}: the smallest that works is {}",
                        min_handles - 1, read, write, min_handles));
    }
  }
  const char* one =
      R"("offload_param": {"device": "nvme", "nvme_path": "/tmp", "buffer_count": 1})";
  CHECK(error_of(zero(3, one)) ==
        "test.json: zero_optimization.offload_param.buffer_count: 1 is too small: the smallest "
        "that works is 2");
}

TEST_CASE("blocks of a file are multiples of what a disk takes") {
  CHECK(error_of(nested("aio.block_size", "5000")) ==
        "test.json: aio.block_size: expected a multiple of 4096, found 5000; the next one is 8192");
  CHECK(error_of(nested("aio.block_size", "8192")) == "");
}

TEST_CASE("what the device of a section leaves without effect is said, key by key") {
  const Resolved cpu = resolve_text(zero(3, R"("offload_optimizer": {"device": "cpu",
      "nvme_path": "/tmp", "buffer_count": 9, "pipeline_read": false, "ratio": 0.5},
      "offload_param": {"device": "cpu", "max_in_cpu": 5, "buffer_size": 1e8})"));
  CHECK(warnings_of(cpu) ==
        std::vector<std::string>{
            "zero_optimization.offload_optimizer.nvme_path \"/tmp\" has no effect: "
            "zero_optimization.offload_optimizer.device is \"cpu\"",
            "zero_optimization.offload_optimizer.buffer_count 9 has no effect: "
            "zero_optimization.offload_optimizer.device is \"cpu\"",
            "zero_optimization.offload_optimizer.pipeline_read false has no effect: "
            "zero_optimization.offload_optimizer.device is \"cpu\"",
            "zero_optimization.offload_param.max_in_cpu 5 has no effect: "
            "zero_optimization.offload_param.device is \"cpu\"",
            "zero_optimization.offload_param.buffer_size 100000000 has no effect: "
            "zero_optimization.offload_param.device is \"cpu\""});
  const Resolved none = resolve_text(zero(2, R"("offload_optimizer": {"device": "none",
      "ratio": 0.5, "pin_memory": true, "step": "cpu"})"));
  CHECK(warnings_of(none) ==
        std::vector<std::string>{"zero_optimization.offload_optimizer.ratio 0.5 has no effect: "
                                 "zero_optimization.offload_optimizer.device is \"none\"",
                                 "zero_optimization.offload_optimizer.step \"cpu\" has no effect: "
                                 "zero_optimization.offload_optimizer.device is \"none\""});
  const Resolved nvme = resolve_text(R"({"zero_optimization": {"stage": 1, "offload_optimizer":
      {"device": "nvme", "nvme_path": "/tmp", "buffer_count": 9}}, "aio": {"queue_depth": 4}})");
  CHECK(warnings_of(nvme).empty());
  CHECK(has_warning(resolve_text(R"({"aio": {"queue_depth": 4}})"), "aio has no effect"));
  CHECK(warnings_of(resolve_text(R"({"aio": {}})")).empty());
}

TEST_CASE("bf16 masters and states need a bf16 run, offload, and a stage that shards") {
  const std::string masters = R"("bf16_master_weights_and_grads": true)";
  const std::string on = R"("enabled": true, )" + masters;
  const std::string states = R"(, "bf16_optimizer_states": true)";
  CHECK(error_of(with_bf16(on, 1, "cpu")) == "");
  CHECK(error_of(with_bf16(on + states, 2, "cpu")) == "");
  CHECK(error_of(with_bf16(masters, 1, "cpu")) ==
        "test.json: bf16.bf16_master_weights_and_grads: true needs bf16.enabled true, found a run "
        "in fp32");
  FlagValues flags;
  flags.precision = Precision::kBf16;
  CHECK(error_of(with_bf16(masters, 1, "cpu"), flags) == "");
  CHECK(error_of(with_bf16(on, 3, "none")) ==
        "test.json: bf16.bf16_master_weights_and_grads: true needs "
        "zero_optimization.offload_optimizer.device \"cpu\" or \"nvme\", found \"none\"");
  CHECK(error_of(with_bf16(on, 0, "cpu")) ==
        "test.json: bf16.bf16_master_weights_and_grads: true needs zero_optimization.stage 1, 2 or "
        "3, found 0");
  CHECK(error_of(with_bf16(R"("enabled": true)" + states, 1, "cpu")) ==
        "test.json: bf16.bf16_optimizer_states: true needs bf16.bf16_master_weights_and_grads "
        "true, found false");
  const std::string all = error_of(R"({"bf16": {"bf16_optimizer_states": true},
      "zero_optimization": {"offload_optimizer": {"ratio": 0.5, "step": "gpu"}}})");
  const std::string path = "\n  bf16.bf16_optimizer_states: true needs ";
  const std::string offload = path + "zero_optimization.offload_optimizer.";
  CHECK(all.find("test.json: 6 errors" + path + "bf16.enabled true, found a run in fp32") == 0);
  CHECK(all.find(path + "zero_optimization.stage 1, 2 or 3, found 0") != std::string::npos);
  CHECK(all.find(offload + "device \"cpu\" or \"nvme\", found \"none\"") != std::string::npos);
  CHECK(all.find(offload + "ratio 1, found 0.5") != std::string::npos);
  CHECK(all.find(offload + "step \"cpu\" or \"auto\", found \"gpu\"") != std::string::npos);
  CHECK(all.find(path + "bf16.bf16_master_weights_and_grads true, found false") !=
        std::string::npos);
}

TEST_CASE("kept inputs on the host are said to have no effect where nothing is recomputed") {
  const auto warned = [](const char* section, std::optional<int64_t> flag) {
    FlagValues flags;
    flags.gradient_checkpointing = flag;
    return has_warning(resolve_text(nested("activation_checkpointing", section), flags),
                       "activation_checkpointing.cpu_checkpointing true has no effect");
  };
  CHECK(warned(R"({"cpu_checkpointing": true})", {}));
  CHECK_FALSE(warned(R"({"cpu_checkpointing": true})", 1));
  CHECK_FALSE(warned(R"({"cpu_checkpointing": true, "number_checkpoints": 2})", {}));
  CHECK_FALSE(warned(R"({"cpu_checkpointing": false})", {}));
}

TEST_CASE("a rate above 1 is warned of wherever it comes from, of SGD one above 100") {
  FlagValues flags;
  flags.lr = 2e5;
  CHECK(
      has_warning(resolve_text("{}", flags),
                  "--lr 200000: a learning rate above 1 hardly ever trains; was a minus sign lost, "
                  "as in 2e5 for 2e-5?"));
  flags.lr = 1;
  CHECK(warnings_of(resolve_text("{}", flags)).empty());
  const auto optimizer = [](const char* type, double lr) {
    return resolve_text(
        fmt::format(R"({{"optimizer": {{"type": "{}", "params": {{"lr": {}}}}}}})", type, lr));
  };
  CHECK(has_warning(optimizer("AdamW", 2), "optimizer.params.lr 2: a learning rate above 1 "));
  CHECK(has_warning(optimizer("Lion", 1.5), "optimizer.params.lr 1.5: "));
  CHECK(warnings_of(optimizer("SGD", 2)).empty());
  CHECK(has_warning(optimizer("SGD", 101), "optimizer.params.lr 101: a learning rate above 100 "));
  const auto scheduler = [](const char* type, const char* params) {
    return resolve_text(
        fmt::format(R"({{"scheduler": {{"type": "{}", "params": {{{}}}}}}})", type, params));
  };
  CHECK(has_warning(scheduler("WarmupLR", R"("warmup_max_lr": 3)"),
                    "scheduler.params.warmup_max_lr 3: "));
  CHECK(has_warning(scheduler("WarmupDecayLR", R"("warmup_max_lr": 3, "total_num_steps": 10)"),
                    "scheduler.params.warmup_max_lr 3: "));
  CHECK(has_warning(scheduler("OneCycle", R"("cycle_min_lr": 0, "cycle_max_lr": 5)"),
                    "scheduler.params.cycle_max_lr 5: "));
  CHECK(has_warning(scheduler("LRRangeTest", R"("lr_range_test_min_lr": 2)"),
                    "scheduler.params.lr_range_test_min_lr 2: "));
}

}  // namespace zeroth::configs::validate_test
