#include "configs/schema/check.h"

#include <ctime>

#include "tests/configs/support.h"

namespace zeroth::configs::check_test {

TEST_CASE("an unknown key anywhere is an error with its path and the nearest name") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"gradient_clipp1ng": 1})",
       "gradient_clipp1ng: unknown key; did you mean gradient_clipping?"},
      {R"({"zero_optimization": {"stag": 1}})",
       "zero_optimization.stag: unknown key; did you mean zero_optimization.stage?"},
      {R"({"fp16": {"enable": true}})", "fp16.enable: unknown key; did you mean fp16.enabled?"},
      {R"({"bf16": {"enabeld": true}})", "bf16.enabeld: unknown key; did you mean bf16.enabled?"},
      {R"({"optimizer": {"type": "Adam", "params": {"beta": 1}}})",
       "optimizer.params.beta: unknown key; did you mean optimizer.params.betas?"},
      {R"({"activation_checkpointing": {"number_checkpoint": 1}})",
       "activation_checkpointing.number_checkpoint: unknown key; did you mean "
       "activation_checkpointing.number_checkpoints?"},
      {R"({"zero_optimization": {"offload_optimizer": {"devise": "none"}}})",
       "zero_optimization.offload_optimizer.devise: unknown key; did you mean "
       "zero_optimization.offload_optimizer.device?"},
      {R"({"zero_optimization": {"leaf_module": {"class": []}}})",
       "zero_optimization.leaf_module.class: unknown key; did you mean "
       "zero_optimization.leaf_module.classes?"},
      {R"({"zero_optimization": {"gradient_clipping": 1}})",
       "zero_optimization.gradient_clipping: unknown key; did you mean gradient_clipping, at the "
       "top level of the file?"},
      {R"({"optimizers": {}})", "optimizers: unknown key; did you mean optimizer?"},
      {R"({"bf17": {}})", "bf17: unknown key; did you mean bf16?"},
      {R"({"zero_optimization": {"xyzzy": 1}})", "zero_optimization.xyzzy: unknown key"},
  };
  for (const auto& [text, message] : cases) {
    CHECK(complaints_of(text) == message);
  }
}

TEST_CASE("what DeepSpeed ignores at the top level is a warning, and an error with --strict") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"log", "unknown key; the nearest known one is log_level"},
      {"cuda_visible_devices", "unknown key"},
      {"min_lr", "unknown key; the nearest known one is scheduler.params.warmup_min_lr"},
      {"comms_config", "unknown key; the nearest known one is comms_logger"},
      {"monitor_config", "unknown key; the nearest known one is csv_monitor"},
      {"zero_optimize", "unknown key; the nearest known one is zero_optimization"},
      {"stage3_max_live_parameters",
       "unknown key; the nearest known one is zero_optimization.stage3_max_live_parameters"},
      {"fp8", "unknown key"},
      {"xyzzy", "unknown key"},
  };
  FlagValues strict;
  strict.strict = true;
  for (const auto& [name, text] : cases) {
    const std::string file = nested(name, "1");
    CHECK(warnings_of(resolve_text(file)) ==
          std::vector<std::string>{
              fmt::format("{}: ignored, as by DeepSpeed: {} (--strict: an error)", name, text)});
    CHECK(error_of(file, strict) == fmt::format("test.json: {}: {}", name, text));
  }
}

TEST_CASE("names that begin with _, // or # are comments at any depth") {
  const Resolved resolved = resolve_text(R"({"_comment": "a", "// why": [1], "#": {"stage": 9},
      "//": 1, "optimizer": {"_note": 1, "type": "AdamW", "params": {"#lr": 1, "_eps": {}}},
      "zero_optimization": {"//stage": 3}, "wandb": {"enabled": false, "_key": "x"}})");
  CHECK(warnings_of(resolved).empty());
  CHECK(resolved.config.zero.stage == 0);
  CHECK(complaints_of(R"({"/x": 1, "zero_optimization": {"/stage": 3}})") ==
        "zero_optimization./stage: unknown key; did you mean zero_optimization.stage?");
  CHECK(complaints_of(R"({"zero_optimization": {"comment": "x"}})") ==
        "zero_optimization.comment: unknown key; names of comments begin with _, # or //");
  CHECK(complaints_of(R"({"comment": "x", "comments": "y"})") == "");  // DeepSpeed ignores them
}

TEST_CASE("an unknown key is an error in every section") {
  for (const ConfigKey& key : keys()) {
    if (key.field.type != KeyType::kSection || key.allowed_keys.find('*') != std::string_view::npos)
      continue;
    CAPTURE(key.path);
    const std::string errors = complaints_of(nested(std::string(key.path) + ".xyzzy", "1"));
    CHECK(errors.find(std::string(key.path) + ".xyzzy: unknown key") != std::string::npos);
  }
}

TEST_CASE("a wrong type names the path, what is expected and what was found") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"gradient_clipping": "1"})",
       "gradient_clipping: expected a number, found the string \"1\""},
      {R"({"gradient_clipping": true})", "gradient_clipping: expected a number, found true"},
      {R"({"wall_clock_breakdown": 1})", "wall_clock_breakdown: expected true or false, found 1"},
      {R"({"train_batch_size": 8.5})", "train_batch_size: expected an integer, found 8.5"},
      {R"({"optimizer": []})", "optimizer: expected an object, found the list []"},
      {R"({"fp16": {"enabled": null}})", "fp16.enabled: expected true or false, found null"},
      {R"({"zero_optimization": {"stage": {}}})",
       "zero_optimization.stage: expected an integer, found an object"},
      {R"({"optimizer": {"params": {"betas": [0.9]}}})",
       "optimizer.params.betas: expected a list of two numbers, found the list [0.9]"},
      {R"({"zero_optimization": {"reduce_bucket_size": 18446744073709551615}})",
       "zero_optimization.reduce_bucket_size: expected an integer, found 18446744073709551615"},
      {R"({"zero_optimization": {"sub_group_size": "big"}})",
       "zero_optimization.sub_group_size: expected an integer, found the string \"big\""},
      {R"({"csv_monitor": {"job_name": "a\u0000b"}})",
       "csv_monitor.job_name: expected a string, found the string \"a\\u0000b\" with a NUL in it"},
      {R"({"zero_optimization": {"leaf_module": {"classes": ["\u0000"]}}})",
       "zero_optimization.leaf_module.classes: expected a list of names, found the list "
       "[\"\\u0000\"] with a NUL in it"},
      {R"([1])", "expected an object at the top level, found the list [1]"},
  };
  for (const auto& [text, message] : cases) {
    CHECK(complaints_of(text) == message);
  }
}

TEST_CASE("a value out of range names the range and the value") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"gradient_clipping": -1})", "gradient_clipping: expected a number >= 0, found -1"},
      {R"({"zero_optimization": {"stage": 4}})",
       "zero_optimization.stage: expected an integer in 0..3, found 4"},
      {R"({"zero_optimization": {"reduce_bucket_size": -5e8}})",
       "zero_optimization.reduce_bucket_size: expected an integer > 0, found -500000000.0"},
      {R"({"optimizer": {"params": {"betas": [0.9, 1.0]}}})",
       "optimizer.params.betas: expected a list of two numbers in [0, 1), found the list "
       "[0.9,1.0]"},
      {R"({"optimizer": {"params": {"lr": -0.1}}})",
       "optimizer.params.lr: expected a number >= 0, found -0.1"},
      {R"({"checkpoint": {"tag_validation": "maybe"}})",
       "checkpoint.tag_validation: expected \"Ignore\" | \"Warn\" | \"Fail\", found the string "
       "\"maybe\""},
      {R"({"seq_parallel_communication_data_type": "int8"})",
       "seq_parallel_communication_data_type: expected \"fp32\" | \"fp16\" | \"bf16\" | null, "
       "found "
       "the string \"int8\""},
      {R"({"scheduler": {"params": {"warmup_num_steps": 0}}})",
       "scheduler.params.warmup_num_steps: expected an integer >= 1, found 0"},
  };
  for (const auto& [text, message] : cases) {
    CHECK(complaints_of(text) == message);
  }
}

TEST_CASE("an integer may be written as an integral float") {
  const CheckedKeys keys = check_keys(
      nlohmann::ordered_json::parse(R"({"zero_optimization": {"reduce_bucket_size": 5e8}})"), "x");
  CHECK(keys.get<int64_t>("zero_optimization.reduce_bucket_size") == 500'000'000);
}

TEST_CASE("auto is refused where nothing could resolve it") {
  CHECK(complaints_of(R"({"zero_optimization": {"stage": "auto"}})") ==
        "zero_optimization.stage: \"auto\" has no meaning here: give a value (default 0)");
  CHECK(complaints_of(R"({"zero_optimization": {"overlap_comm": "auto",
                          "contiguous_gradients": "auto"}})")
            .empty());
}

TEST_CASE("other spellings mean the same key, and only one of them may stand") {
  const Config config = config_of(R"({"bfloat16": {"enabled": true}, "zero_optimization": {
      "prefetch_bucket_size": 7, "param_persistence_threshold": 8, "max_live_parameters": 9}})");
  CHECK(config.precision == Precision::kBf16);
  CHECK(config.zero.prefetch_bucket_elements == 7);
  CHECK(config.zero.param_persistence_threshold_elements == 8);
  CHECK(config.zero.max_live_elements == 9);
  CHECK(complaints_of(R"({"zero_optimization": {"max_live_parameters": 9,
                          "stage3_max_live_parameters": 9}})") ==
        "zero_optimization.stage3_max_live_parameters: duplicate key, also in the file as "
        "zero_optimization.max_live_parameters: keep one");
  CHECK(complaints_of(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})") ==
        "bf16: duplicate key, also in the file as bfloat16: keep one");
}

TEST_CASE("a key without effect is noted once when it differs from the default") {
  const Resolved resolved = resolve_text(R"({"zero_optimization": {"stage": 2,
      "contiguous_gradients": true, "round_robin_gradients": true}, "bf16": {"enabled": true},
      "train_batch_size": 8})");
  CHECK(warnings_of(resolved).empty());
  CHECK(diagnostic_lines(resolved.notes, Diagnostic::Kind::kNote) ==
        std::vector<std::string>{"zero_optimization.round_robin_gradients true has no effect: "
                                 "shards are even, and each rank moves its own"});
}

TEST_CASE("what has an effect with parallelism alone is noted") {
  const Resolved resolved = resolve_text(R"({"activation_checkpointing":
      {"partition_activations": true}, "disable_allgather": true,
      "seq_parallel_communication_data_type": "bf16"})");
  CHECK(warnings_of(resolved).empty());
  CHECK(has_note(resolved,
                 "activation_checkpointing.partition_activations true has no effect: "
                 "with tensor_parallel, saved inputs are always split over its ranks"));
  CHECK(has_note(resolved, "disable_allgather true has no effect: each stage uses the collective"));
  CHECK(has_note(resolved,
                 "seq_parallel_communication_data_type \"bf16\" has no effect: sequences are not "
                 "split over ranks"));
  CHECK(complaints_of(R"({"seq_parallel_communication_data_type": null})") == "");
}

TEST_CASE("sections that are off may say what they like, and are refused when they are on") {
  CHECK(complaints_of(R"({"autotuning": {"enabled": false, "whatever": 1},
      "data_efficiency": {"data_sampling": {"enabled": true}, "x": 1},
      "compile": {"enabled": false, "backend": "inductor", "kwargs": {}}})") == "");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"autotuning": {"enabled": true}})",
       "autotuning: refused: not supported yet: set --micro-batch; the summary shows the memory "
       "that it needs; leave the section out or set enabled to false"},
      {R"({"data_efficiency": {"enabled": true}})",
       "data_efficiency: refused: not supported yet: it changes which samples are used; without it "
       "all are used, in shuffled order; leave the section out or set enabled to false"},
      {R"({"compile": {"deepcompile": true}})",
       "compile: refused: there is no Python to compile, and Zeroth's kernels are compiled "
       "already; leave the section out or set deepcompile to false"},
      {R"({"compile": {"enabled": true}})",
       "compile: refused: there is no Python to compile, and Zeroth's kernels are compiled "
       "already; leave the section out or set enabled to false"},
      {R"({"compile": {"disable": false, "backend": "inductor"}})",
       "compile: refused: there is no Python to compile, and Zeroth's kernels are compiled "
       "already; leave the section out or set disable to true"},
      {R"({"zero_optimization": {"zero_quantized_weights": true}})",
       "zero_optimization.zero_quantized_weights: true is refused: not supported yet: it rounds "
       "the gathered weights; set it to false to gather them unchanged; accepted: false"},
      {R"({"zero_optimization": {"zero_quantized_gradients": true}})",
       "zero_optimization.zero_quantized_gradients: true is refused: not supported yet: it rounds "
       "the reduced gradients; set it to false; communication_data_type sets the precision of "
       "communication; accepted: false"},
      {R"({"zero_optimization": {"mics_shard_size": 8}})",
       "zero_optimization.mics_shard_size: 8 is refused: not supported, as in DeepSpeed: use "
       "zero_hpz_partition_size instead; accepted: -1"},
  };
  for (const auto& [text, message] : cases) CHECK(complaints_of(text) == message);
}

TEST_CASE("null leaves a key out where its default is null") {
  const Config config = config_of(R"({"steps_per_print": null, "activation_checkpointing":
      {"number_checkpoints": null}, "train_batch_size": null, "scheduler": null})");
  CHECK(config.steps_per_print == 0);
  CHECK(config.recompute.number_checkpoints == 0);
}

TEST_CASE("60,000 unknown keys, and long ones, are refused in linear time") {
  std::string many = "{", longs = "{";
  for (int i = 0; i < 60'000; ++i) many += fmt::format("\"key{}\": [{{}}],", i);
  for (int i = 0; i < 3'000; ++i) {
    longs += fmt::format("\"zero_optimization{}{}\": 1,", std::string(3'000, 'k'), i);
  }
  for (const std::string& text : {many, longs}) {
    const std::clock_t start = std::clock();
    FlagValues strict;
    strict.strict = true;
    const std::string error = error_of(text + "\"stages\": 1}", strict);
    CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
    CHECK(error.find(" errors\n") != std::string::npos);
    CHECK(error.find("\n  and ") != std::string::npos);
    CHECK(error.size() < 20'000);
    const auto warnings = warnings_of(resolve_text(text + "\"stages\": 1}"));
    CHECK(warnings.size() == 21);
    CHECK(warnings.back().ends_with("more unknown keys are ignored, as by DeepSpeed"));
  }
}

}  // namespace zeroth::configs::check_test
