#include "engine/memory/memory_remedies.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace zeroth::engine::fitting_config_test {
namespace {

using configs::Config;
using configs::OffloadDevice;
using configs::OffloadParamConfig;
using Shortage = MemoryFacts::Shortage;

std::vector<std::string> texts(const Config& config, const MemoryFacts& facts) {
  std::vector<std::string> texts;
  for (const MemoryChange& change : memory_changes(config, facts)) texts.push_back(change.text);
  return texts;
}

bool offers(const Config& config, const MemoryFacts& facts, const std::string& start) {
  for (const std::string& text : texts(config, facts)) {
    if (text.starts_with(start)) return true;
  }
  return false;
}

bool in_file(const Config& config) {
  return config.zero.offload_optimizer.device == OffloadDevice::kNvme;
}

}  // namespace

TEST_CASE("sharding is offered first, to several ranks that do not shard already") {
  Config config;
  CHECK(texts(config, {.world_size = 2}).front() == "zero_optimization.stage 2");
  CHECK_FALSE(offers(config, {.world_size = 1}, "zero_optimization.stage "));
  config.zero.stage = 2;
  CHECK(texts(config, {.world_size = 2}).front() == "zero_optimization.stage 3");
  config.zero.stage = 3;
  CHECK_FALSE(offers(config, {.world_size = 2}, "zero_optimization.stage "));
}

TEST_CASE("what rests in host memory may rest in files") {
  const std::string optimizer = "zero_optimization.offload_optimizer.device \"nvme\"";
  const std::string parameters = "zero_optimization.offload_param {\"device\": \"nvme\"";
  Config config;
  CHECK(offers(config, {}, optimizer));
  CHECK(offers(config, {}, parameters));
  CHECK_FALSE(offers(config, {.trains = false}, optimizer));
  // Beside a GPU only what is offloaded lies in host memory.
  CHECK_FALSE(offers(config, {.shortage = Shortage::kHost}, optimizer));
  config.zero.offload_optimizer.device = OffloadDevice::kCpu;
  CHECK(offers(config, {.shortage = Shortage::kHost}, optimizer));
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  config.zero.offload_param.device = OffloadDevice::kNvme;
  CHECK_FALSE(offers(config, {}, optimizer));
  CHECK_FALSE(offers(config, {}, parameters));
  CHECK(offers(config, {}, "zero_optimization.offload_param {\"max_in_cpu\": 0}"));
}

TEST_CASE("the fewest changes that fit are chosen") {
  const Config config;
  const MemoryFacts facts{.world_size = 2};
  const auto sharded =
      fit_memory(config, facts, [](const Config& c) { return c.zero.stage >= 2 ? 0 : 1; });
  CHECK(sharded.changes == std::vector<std::string>{"zero_optimization.stage 2"});
  CHECK(sharded.config.zero.stage == 2);
  const auto filed = fit_memory(config, facts, [](const Config& c) { return in_file(c) ? 0 : 1; });
  CHECK(filed.changes ==
        std::vector<std::string>{"zero_optimization.offload_optimizer.device \"nvme\""});
  CHECK(filed.config.zero.stage == 0);
  const auto both = fit_memory(
      config, facts, [](const Config& c) { return c.zero.stage == 3 && in_file(c) ? 0 : 1; });
  CHECK(both.changes ==
        std::vector<std::string>{"zero_optimization.stage 3",
                                 "zero_optimization.offload_optimizer.device \"nvme\""});
}

TEST_CASE("files that the disk cannot hold may rest in host memory") {
  Config config;
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  config.zero.offload_param.device = OffloadDevice::kNvme;
  const auto fit = fit_memory(config, {}, [](const Config& c) { return in_file(c) ? 1 : 0; });
  CHECK(fit.changes ==
        std::vector<std::string>{"zero_optimization.offload_optimizer.device \"cpu\""});
}

TEST_CASE("a change that does not work with the model hides none behind it") {
  Config config;
  config.zero.stage = 3;
  config.zero.offload_param.device = OffloadDevice::kNvme;
  // Lacks the sum of what is not done; where all goes to the file nothing else may be small.
  const auto lacks = [](const Config& c) -> int64_t {
    const OffloadParamConfig& param = c.zero.offload_param;
    if (param.max_in_cpu_elements == 0 && c.zero.sub_group_size_elements < 200'000'000) {
      return kInvalidConfig;
    }
    return (param.max_in_cpu_elements > 0) + (param.buffer_count > 2);
  };
  CHECK(fit_memory(config, {}, lacks).changes ==
        std::vector<std::string>{"zero_optimization.offload_param {\"max_in_cpu\": 0}",
                                 "zero_optimization.offload_param.buffer_count 2"});
}

TEST_CASE("more in the file needs other buffers: a given size is left out") {
  Config config;
  config.zero.stage = 3;
  config.zero.offload_param.device = OffloadDevice::kNvme;
  config.zero.offload_param.buffer_size_elements = 1000;
  const auto lacks = [](const Config& c) -> int64_t {
    const OffloadParamConfig& param = c.zero.offload_param;
    if (param.max_in_cpu_elements > 0) return 1;
    return param.buffer_size_elements == 1000 ? kInvalidConfig : 0;
  };
  const FittingConfig found = fit_memory(config, {}, lacks);
  CHECK(found.changes == std::vector<std::string>{"zero_optimization.offload_param "
                                                  "{\"max_in_cpu\": 0} without buffer_size"});
  CHECK(found.config.zero.offload_param.buffer_size_elements == configs::kBufferSizeAsNeeded);
}

TEST_CASE("what would make things worse is left out, and what helps stays") {
  Config config;
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  const auto smallest = fit_memory(config, {.world_size = 2}, [](const Config& c) {
    return 10 - c.zero.stage + (in_file(c) ? 0 : 100);
  });
  CHECK(smallest.changes == std::vector<std::string>{"zero_optimization.stage 3"});
}

TEST_CASE("a configuration that fits needs no change, one that never fits has those that help") {
  const Config config;
  const MemoryFacts facts{.world_size = 2};
  CHECK(fit_memory(config, facts, [](const Config&) { return 0; }).changes.empty());
  CHECK(fit_memory(config, facts, [](const Config&) { return 1; }).changes.empty());
  const auto less =
      fit_memory(config, facts, [](const Config& c) { return 10 - c.zero.stage - in_file(c); });
  CHECK(less.config.zero.stage == 3);
  CHECK(in_file(less.config));
  CHECK(std::count(less.changes.begin(), less.changes.end(), "zero_optimization.stage 2") == 0);
}

}  // namespace zeroth::engine::fitting_config_test
