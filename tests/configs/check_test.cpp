#include "configs/schema/check.h"

#include <ctime>

#include "tests/configs/support.h"

namespace zeroth::configs {

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
      {R"({"stage3_max_live_parameters": 1})",
       "stage3_max_live_parameters: unknown key; did you mean "
       "zero_optimization.stage3_max_live_parameters?"},
      {R"({"activation_checkpointing": {"number_checkpoint": 1}})",
       "activation_checkpointing.number_checkpoint: unknown key; did you mean "
       "activation_checkpointing.number_checkpoints?"},
      {R"({"zero_optimization": {"offload_optimizer": {"devise": "none"}}})",
       "zero_optimization.offload_optimizer.devise: unknown key; did you mean "
       "zero_optimization.offload_optimizer.device?"},
      {R"({"zero_optimization": {"leaf_module": {"class": []}}})",
       "zero_optimization.leaf_module.class: unknown key; did you mean "
       "zero_optimization.leaf_module.classes?"},
      {R"({"zero_optimization": {"aio": {"block_size": 4096}}})",
       "zero_optimization.aio: unknown key; did you mean aio, at the top level of the file?"},
      {R"({"xyzzy": 1})", "xyzzy: unknown key"},
  };
  for (const auto& [text, complaint] : cases) {
    CHECK(complaints_of(text) == complaint);
  }
}

TEST_CASE("an unknown key is an error in every section") {
  for (const Key& key : keys()) {
    if (key.type != KeyType::kSection || key.inside.find('*') != std::string_view::npos) continue;
    CAPTURE(key.path);
    const std::string complaints = complaints_of(nested(std::string(key.path) + ".xyzzy", "1"));
    CHECK(complaints.find(std::string(key.path) + ".xyzzy: unknown key") != std::string::npos);
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
  for (const auto& [text, complaint] : cases) {
    CHECK(complaints_of(text) == complaint);
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
      {R"({"scheduler": {"params": {"warmup_type": "cubic"}}})",
       "scheduler.params.warmup_type: expected \"log\" | \"linear\", found the string \"cubic\""},
      {R"({"scheduler": {"params": {"warmup_num_steps": 0}}})",
       "scheduler.params.warmup_num_steps: expected an integer >= 1, found 0"},
  };
  for (const auto& [text, complaint] : cases) {
    CHECK(complaints_of(text) == complaint);
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
        "zero_optimization.stage3_max_live_parameters: stands in the file also as "
        "zero_optimization.max_live_parameters: keep one");
  CHECK(complaints_of(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})") ==
        "bf16: stands in the file also as bfloat16: keep one");
}

TEST_CASE("a key without effect is noted once when it differs from the default") {
  const Resolved resolved = resolve_text(R"({"zero_optimization": {"stage": 2,
      "contiguous_gradients": true, "round_robin_gradients": true}, "bf16": {"enabled": true},
      "train_batch_size": 8})");
  REQUIRE(warnings_of(resolved).size() == 1);
  CHECK(warnings_of(resolved)[0] ==
        "zero_optimization.round_robin_gradients true has no effect: shards "
        "are even, and each rank moves its own");
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
    const std::string error = error_of(text + "\"stages\": 1}");
    CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
    CHECK(error.find(" errors\n") != std::string::npos);
    CHECK(error.find("\n  and ") != std::string::npos);
    CHECK(error.size() < 20'000);
  }
}

}  // namespace zeroth::configs
