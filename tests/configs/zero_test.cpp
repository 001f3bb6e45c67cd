#include <cstdlib>
#include <filesystem>

#include "tests/configs/support.h"

namespace zeroth::configs::zero_test {
namespace {

constexpr char kAutoSizes[] = R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "allgather_bucket_size": "auto", "overlap_comm": "auto"}})";

using Step = OffloadOptimizerConfig::UpdateDevice;

std::string section(const std::string& allowed_keys, int stage = 3) {
  return fmt::format(R"({{"zero_optimization": {{"stage": {}, {}}}}})", stage, allowed_keys);
}

}  // namespace

TEST_CASE("auto sizes come from the model's hidden size") {
  const ZeroConfig zero = config_of(kAutoSizes).zero;
  CHECK(zero.stage == 3);
  CHECK(zero.reduce_bucket_elements == 64 * 64);
  CHECK(zero.prefetch_bucket_elements == 3686);
  CHECK(zero.param_persistence_threshold_elements == 640);
  CHECK(zero.allgather_bucket_elements == 500'000'000);
  CHECK(zero.overlap_comm);
}

TEST_CASE("auto sizes without a hidden size are errors, one for each key") {
  const std::string error =
      error_of(kAutoSizes, {}, {.world_size = 2, .hidden_size = 0, .total_steps = 1});
  CHECK(error.find("3 errors") != std::string::npos);
  CHECK(error.find("zero_optimization.reduce_bucket_size: \"auto\" needs the model's hidden "
                   "size: give a number") != std::string::npos);
}

TEST_CASE("below stage 3, automatic sizes of stage 3 are the defaults, and need no hidden size") {
  const char* text = R"({"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": "auto",
                         "stage3_param_persistence_threshold": "auto"}})";
  const Resolved resolved = resolve_text(text, {}, {.world_size = 1, .total_steps = 1});
  const ZeroConfig& zero = resolved.config.zero;
  CHECK(resolved.origins.at("zero_optimization.stage3_prefetch_bucket_size") ==
        "auto: the default");
  CHECK(zero.prefetch_bucket_elements == 50'000'000);
  CHECK(zero.param_persistence_threshold_elements == 100'000);
}

TEST_CASE("the other keys of the section are read") {
  const ZeroConfig zero = config_of(R"({"zero_optimization": {"stage": 2,
      "reduce_scatter": false, "ignore_unused_parameters": false, "sub_group_size": 1e6}})")
                              .zero;
  CHECK_FALSE(zero.reduce_scatter);
  CHECK_FALSE(zero.ignore_unused_parameters);
  CHECK(zero.sub_group_size_elements == 1'000'000);
}

TEST_CASE("the zeros of common stage 3 files mean nothing ahead and tiles as by default") {
  const ZeroConfig zero = config_of(R"({"zero_optimization": {"stage": 3, "sub_group_size": 0,
      "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}})")
                              .zero;
  CHECK(zero.sub_group_size_elements == 1'000'000'000);
  CHECK(zero.max_live_elements == 0);
}

TEST_CASE("overlap is on at every stage unless it is switched off") {
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(config_of(nested("zero_optimization.stage", std::to_string(stage))).zero.overlap_comm);
  }
  CHECK_FALSE(config_of(nested("zero_optimization.overlap_comm", "false")).zero.overlap_comm);
}

TEST_CASE("the old boolean form is stage one or zero, and said") {
  const Resolved on = resolve_text(R"({"zero_optimization": true})");
  CHECK(on.config.zero.stage == 1);
  CHECK(has_warning(on, "zero_optimization: true is the old form of {\"stage\": 1}"));
  CHECK(config_of(R"({"zero_optimization": false})").zero.stage == 0);
}

TEST_CASE("recompute comes from the file or from the flag") {
  CHECK(config_of("{}").recompute.every_nth_block == 0);
  FlagValues flags;
  flags.gradient_checkpointing = 2;
  CHECK(config_of("{}", flags).recompute.every_nth_block == 2);
  const RecomputeConfig file =
      config_of(R"({"activation_checkpointing": {"number_checkpoints": 4}})").recompute;
  CHECK(file.number_checkpoints == 4);
  CHECK(file.every_nth_block == 0);
}

TEST_CASE("without its sections nothing is offloaded") {
  const Config config = config_of(R"({"zero_optimization": {"stage": 3}})");
  CHECK(config.zero.offload_optimizer.device == OffloadDevice::kNone);
  CHECK(config.zero.offload_param.device == OffloadDevice::kNone);
  CHECK_FALSE(config.recompute.cpu_checkpointing);
  CHECK(config.aio.block_size == 1 << 20);
}

TEST_CASE("every value of offload_optimizer is read") {
  const OffloadOptimizerConfig optimizer = config_of(section(R"("offload_optimizer": {
      "device": "nvme", "nvme_path": "/fast/./disk/", "buffer_count": 2, "pin_memory": false,
      "pipeline_read": false, "pipeline_write": true, "ratio": 0.5, "step": "gpu"})"))
                                               .zero.offload_optimizer;
  CHECK(optimizer.device == OffloadDevice::kNvme);
  CHECK(optimizer.nvme_path == "/fast/disk");
  CHECK(optimizer.buffer_count == 2);
  CHECK_FALSE(optimizer.pin_memory);
  CHECK_FALSE(optimizer.pipeline_read);
  CHECK(optimizer.pipeline_write);
  CHECK(optimizer.ratio == 0.5);
  CHECK(optimizer.step == Step::kGpu);
}

TEST_CASE("every value of offload_param and of aio is read") {
  const Config config = config_of(R"({"zero_optimization": {"stage": 3, "offload_param": {
      "device": "nvme", "nvme_path": "/fast", "buffer_count": 2, "buffer_size": 1e7,
      "max_in_cpu": 0, "pin_memory": false}}, "aio": {"block_size": 131072, "queue_depth": 16,
      "intra_op_parallelism": 2, "single_submit": false, "overlap_events": true,
      "use_gds": false}})");
  const OffloadParamConfig& param = config.zero.offload_param;
  CHECK(param.device == OffloadDevice::kNvme);
  CHECK(param.nvme_path == "/fast");
  CHECK(param.buffer_count == 2);
  CHECK(param.buffer_size_elements == 10'000'000);
  CHECK(param.max_in_cpu_elements == 0);
  CHECK_FALSE(param.pin_memory);
  CHECK(config.aio.block_size == 131072);
  CHECK(config.aio.queue_depth == 16);
  CHECK(config.aio.threads == 2);
}

TEST_CASE("pipelines are on unless a file says false, and auto is the default of every value") {
  const OffloadOptimizerConfig optimizer =
      config_of(section(R"("offload_optimizer": {"device": "cpu"})")).zero.offload_optimizer;
  CHECK(optimizer.pipeline_read);
  CHECK(optimizer.pipeline_write);
  CHECK(optimizer.step == Step::kAuto);
  const Resolved automatic = resolve_text(section(R"("offload_optimizer": {"device": "auto",
      "nvme_path": "auto", "pin_memory": "auto", "buffer_count": "auto", "step": "auto",
      "ratio": "auto"}, "offload_param": {"device": "auto", "nvme_path": "auto",
      "pin_memory": "auto", "buffer_size": "auto"})"));
  CHECK(to_json(automatic.config) == to_json(config_of(R"({"zero_optimization": {"stage": 3}})")));
  CHECK(warnings_of(automatic).empty());
  CHECK(automatic.origins.at("zero_optimization.offload_optimizer.device") == "auto: the default");
  CHECK(automatic.origins.at("zero_optimization.offload_optimizer.step") ==
        "auto: both are timed when training starts, and the faster one is used");
}

TEST_CASE("the optimizer is offloaded at every stage, to a file too") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* device : {"cpu", "nvme"}) {
      const std::string text = section(
          fmt::format(
              R"("offload_optimizer": {{"device": "{}", "nvme_path": "/tmp", "ratio": 0.5}})",
              device),
          stage);
      CHECK(error_of(text) == "");
    }
  }
}

TEST_CASE("a relative nvme_path becomes an absolute one, and the folder that it is is said") {
  const std::string here = std::filesystem::current_path().string();
  const auto text = [](const char* path) {
    return section(
        fmt::format(R"("offload_optimizer": {{"device": "nvme", "nvme_path": "{}"}})", path));
  };
  const Resolved missing = resolve_text(text("no/such/folder"));
  CHECK(missing.config.zero.offload_optimizer.nvme_path == here + "/no/such/folder");
  CHECK(has_note(missing, fmt::format("zero_optimization.offload_optimizer.nvme_path: "
                                      "{}/no/such/folder does not exist and will be created",
                                      here)));
  const Resolved present = resolve_text(text("../"));
  CHECK(has_note(present, fmt::format("nvme_path: ../ is {}",
                                      present.config.zero.offload_optimizer.nvme_path)));
  CHECK_FALSE(has_note(resolve_text(text("/tmp")), "nvme_path"));
  const std::string file = std::string(ZEROTH_SOURCE_DIR) + "/README.md";
  CHECK(error_of(text(file.c_str())) ==
        fmt::format("test.json: zero_optimization.offload_optimizer.nvme_path: {} is a file, "
                    "expected a folder",
                    file));
}

TEST_CASE("bf16 masters and states reach the optimizer") {
  const OptimizerConfig optimizer = config_of(R"({"bf16": {"enabled": true,
      "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
      "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})")
                                        .optimizer;
  CHECK(optimizer.bf16_masters);
  CHECK(optimizer.bf16_states);
}

TEST_CASE("a file of the kind in DeepSpeed's documentation loads as it is") {
  const std::string path =
      std::string(ZEROTH_SOURCE_DIR) + "/tests/configs/fixtures/deepspeed_zero3_offload.json";
  const Resolved resolved =
      resolve(load(path), {}, {.world_size = 2, .hidden_size = 64, .total_steps = 100});
  const Config& config = resolved.config;
  CHECK(config.zero.stage == 3);
  CHECK(config.zero.offload_optimizer.device == OffloadDevice::kCpu);
  CHECK(config.zero.offload_optimizer.pin_memory);
  CHECK(config.zero.offload_param.device == OffloadDevice::kCpu);
  CHECK(config.precision == Precision::kBf16);
  CHECK(config.batch.train_batch_size == 256);
  CHECK(config.batch.accumulation_steps == 4);
  CHECK(config.batch.micro_batch_size == 32);
  CHECK(config.zero.reduce_bucket_elements == 64 * 64);
  CHECK(config.zero.sub_group_size_elements == 1'000'000'000);
  CHECK(warnings_of(resolved) ==
        std::vector<std::string>{
            "aio.thread_count is the old name of aio.intra_op_parallelism",
            "aio has no effect: neither zero_optimization.offload_optimizer.device nor "
            "zero_optimization.offload_param.device is \"nvme\""});
}

TEST_CASE("near ranks of stage 3 divide the data ranks, and keep their shards on the device") {
  const auto text = [](const std::string& more) {
    return fmt::format(R"({{"zero_optimization": {{"zero_hpz_partition_size": {}}}}})", more);
  };
  constexpr RunFacts kFour{.world_size = 4, .hidden_size = 64, .total_steps = 100};
  CHECK(config_of("{}").zero.hpz_partition_size == 1);
  CHECK(config_of(text(R"(0, "stage": 3)")).zero.hpz_partition_size == 1);
  CHECK(config_of(text(R"(2, "stage": 3)")).zero.hpz_partition_size == 2);
  CHECK(error_of(text(R"(2, "stage": 3)"), {}, kFour) == "");
  CHECK(
      error_of(text(R"(3, "stage": 3)"), {}, kFour) ==
      "test.json: zero_optimization.zero_hpz_partition_size: 3 does not divide the number of data "
      "ranks, 4");
  CHECK(error_of(text(R"(2, "stage": 3, "offload_param": {"device": "cpu"})"), {}, kFour) ==
        "test.json: zero_optimization.zero_hpz_partition_size: 2 keeps a secondary shard on the "
        "device, but zero_optimization.offload_param.device is \"cpu\": reset one of them (1, "
        "\"none\")");
  CHECK(error_of(text(R"(2, "stage": 2)"), {}, kFour) == "");  // a note
}

}  // namespace zeroth::configs::zero_test
