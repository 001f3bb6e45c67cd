#include "engine/memory/memory_remedies.h"

#include <doctest/doctest.h>

namespace zeroth::engine::memory_remedies_test {
namespace {

using configs::Config;
using configs::OffloadDevice;
using configs::Precision;

bool any_has(const std::vector<std::string>& remedies, std::string_view part) {
  for (const std::string& remedy : remedies) {
    if (remedy.find(part) != std::string::npos) return true;
  }
  return false;
}

// What follows in a remedy is JSON, which has all sections that are not the default.
bool any_starts(const std::vector<std::string>& remedies, std::string_view start) {
  for (const std::string& remedy : remedies) {
    if (remedy.starts_with(start)) return true;
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

TEST_CASE("breadth-first, the other schedule is offered before smaller micro-batches") {
  Config config;
  config.batch = {.train_batch_size = 72, .micro_batch_size = 9, .accumulation_steps = 4};
  config.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
  const MemoryFacts facts{.world_size = 2, .activations = true};
  const auto remedies = memory_remedies(config, facts);
  CHECK(remedies.front().starts_with("pipeline.schedule \"1f1b\" in place of \"breadth-first\""));
  CHECK_FALSE(any_has(remedies, "--micro-batch"));
  const std::vector<MemoryChange> changes = memory_changes(config, facts);
  REQUIRE_FALSE(changes.empty());
  changes.front().apply(config);
  CHECK(config.pipeline.schedule == configs::PipelineConfig::Schedule::k1F1B);
}

TEST_CASE("a remedy that is a key comes with the section to paste") {
  Config config;
  config.recompute.every_nth_block = 1;
  config.precision = Precision::kBf16;
  config.zero.reduce_bucket_elements = 4096;
  const MemoryFacts facts{.world_size = 2};
  CHECK(any_has(memory_remedies(config, facts),
                "\n    in ds_config.json: \"zero_optimization\": {\"stage\": 2, "
                "\"reduce_bucket_size\": 4096}"));
  config.zero.stage = 3;
  const auto remedies = memory_remedies(config, facts);
  CHECK(any_has(remedies,
                "\n    in ds_config.json: \"zero_optimization\": {\"stage\": 3, "
                "\"reduce_bucket_size\": 4096, \"offload_optimizer\": {\"device\": \"nvme\", "
                "\"nvme_path\": \"/local_nvme\"}}"));
  CHECK(any_has(remedies,
                "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/local_nvme\", "
                "\"max_in_cpu\": 0}}"));
  Config files = config;
  files.zero.offload_optimizer = {.device = OffloadDevice::kNvme, .nvme_path = "/mine"};
  Config more = files;
  more.zero.offload_param.device = OffloadDevice::kNvme;
  CHECK(json_to_paste(files, more).find("{\"device\": \"nvme\", \"nvme_path\": \"/mine\"}}") !=
        std::string::npos);
  CHECK(json_to_paste(config, config).empty());
}

TEST_CASE("what is done already is not offered, and there are always three") {
  Config config;
  config.zero.stage = 2;
  config.recompute.every_nth_block = 1;
  auto remedies = memory_remedies(config, {.world_size = 2, .seq_len = 64});
  REQUIRE(remedies.size() == 3);
  CHECK(any_has(remedies, "zero_optimization.stage 3 in place of 2"));
  CHECK(any_has(remedies, "--bf16"));
  CHECK(any_has(remedies, "zero_optimization.offload_optimizer.device \"nvme\""));
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

TEST_CASE("on the CPU, files take what host memory cannot hold") {
  Config config;
  config.batch.micro_batch_size = 1;
  config.recompute.every_nth_block = 1;
  config.precision = Precision::kBf16;
  config.zero.stage = 3;
  const MemoryFacts facts{.world_size = 2, .seq_len = 64};
  for (const OffloadDevice place : {OffloadDevice::kNone, OffloadDevice::kCpu}) {
    config.zero.offload_optimizer.device = config.zero.offload_param.device = place;
    const auto remedies = memory_remedies(config, facts);
    CHECK(remedies[0].starts_with("zero_optimization.offload_optimizer.device \"nvme\""));
    CHECK(remedies[1].starts_with("zero_optimization.offload_param.device \"nvme\""));
    CHECK(remedies[2].starts_with("--seq-len 32"));
  }
  config.zero.offload_optimizer.device = config.zero.offload_param.device = OffloadDevice::kNvme;
  auto remedies = memory_remedies(config, facts);
  CHECK(remedies[0].starts_with("zero_optimization.offload_param.max_in_cpu below 1000000000"));
  config.zero.offload_param.max_in_cpu_elements = 0;
  remedies = memory_remedies(config, facts);
  CHECK_FALSE(any_starts(remedies, "zero_optimization.offload"));
}

TEST_CASE("what a GPU cannot hold goes to host memory") {
  Config config;
  config.recompute.every_nth_block = 1;
  config.precision = Precision::kBf16;
  const MemoryFacts facts{.seq_len = 64, .shortage = MemoryFacts::Shortage::kDevice};
  auto remedies = memory_remedies(config, facts);
  REQUIRE(remedies.size() == 3);
  CHECK(remedies[0].starts_with("zero_optimization.offload_optimizer.device \"cpu\""));
  CHECK(remedies[1].starts_with("activation_checkpointing.cpu_checkpointing"));
  CHECK(remedies[2].starts_with(
      "zero_optimization.stage 3 and zero_optimization.offload_param.device \"cpu\""));
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = config.zero.offload_param.device = OffloadDevice::kNvme;
  config.recompute.cpu_checkpointing = true;
  remedies = memory_remedies(config, facts);
  CHECK_FALSE(any_starts(remedies, "zero_optimization.offload"));
  CHECK_FALSE(any_has(remedies, "cpu_checkpointing"));
  config = {};
  remedies = memory_remedies(
      config, {.seq_len = 1, .trains = false, .shortage = MemoryFacts::Shortage::kDevice});
  CHECK(any_has(remedies, "--bf16"));
  CHECK(any_has(remedies, "offload_param.device \"cpu\""));
  CHECK_FALSE(any_has(remedies, "offload_optimizer"));
}

TEST_CASE("host memory of a run on GPUs is short of what was offloaded to it") {
  Config config;
  config.batch.micro_batch_size = 8;
  const auto lacking = [&](int64_t ranks) {
    return memory_remedies(
        config, {.world_size = ranks, .seq_len = 64, .shortage = MemoryFacts::Shortage::kHost});
  };
  CHECK(lacking(2) == std::vector<std::string>{"a smaller model"});  // nothing is offloaded
  config.zero.offload_optimizer.device = OffloadDevice::kCpu;
  auto remedies = lacking(2);
  REQUIRE(remedies.size() == 3);
  CHECK(remedies[0].starts_with("zero_optimization.stage 2 in place of 0"));
  CHECK(remedies[1].starts_with("zero_optimization.offload_optimizer.device \"nvme\""));
  CHECK(remedies[2].starts_with("zero_optimization.offload_optimizer.ratio below 1"));
  config.zero.stage = 3;
  config.zero.offload_param.device = OffloadDevice::kCpu;
  config.recompute = {.every_nth_block = 1, .cpu_checkpointing = true};
  remedies = lacking(2);
  REQUIRE(remedies.size() == 3);
  CHECK(remedies[0].starts_with("--micro-batch 4"));
  CHECK(remedies[1].starts_with("activation_checkpointing.cpu_checkpointing false"));
  CHECK(remedies[2].starts_with("zero_optimization.offload_optimizer.device \"nvme\""));
  config.recompute.cpu_checkpointing = false;
  CHECK(any_has(lacking(2), "offload_param.device \"nvme\""));
}

}  // namespace zeroth::engine::memory_remedies_test
