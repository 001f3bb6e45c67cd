// The section pipeline: ranks, schedules and partitions.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/configs/support.h"

namespace zeroth::configs::pipeline_test {
namespace {

using Schedule = PipelineConfig::Schedule;

RunFacts on(int64_t ranks) {
  return {.world_size = ranks, .hidden_size = 64, .total_steps = 100};
}

std::string pipeline(const std::string& keys) {
  return "{\"pipeline\": {" + keys + "}}";
}

}  // namespace

TEST_CASE("a schedule of several stages does not run with one") {
  CHECK(config_of(R"({"pipeline": {"schedule": "breadth-first"}})").pipeline.schedule ==
        PipelineConfig::Schedule::kBreadthFirst);
  for (const char* name : {"gpipe", "interleaved", "zb-h1", "zbv"}) {
    CHECK(error_of(fmt::format(R"({{"pipeline": {{"schedule": "{}"}}}})", name)) ==
          fmt::format("test.json: pipeline.schedule: \"{}\" orders the passes of several stages, "
                      "and there is "
                      "one; \"1f1b\" and \"breadth-first\" work with one stage",
                      name));
  }
}

TEST_CASE("stages and tensor-parallel ranks divide the ranks") {
  const Resolved resolved = resolve_text(
      R"({"pipeline": {"stages": 2}, "tensor_parallel": {"autotp_size": 2}})", {}, on(8));
  CHECK(resolved.config.pipeline.stages == 2);
  CHECK(resolved.config.sharing_ranks() == 4);
  CHECK(resolved.config.data_ranks(8) == 2);
  CHECK(
      error_of(pipeline(R"("stages": 4)"), {}, on(6)) ==
      "test.json: pipeline.stages: 4 does not divide the number of ranks, 6: set it to 3, or start "
      "8 ranks");
  CHECK(
      error_of(R"({"pipeline": {"stages": 2}, "tensor_parallel": {"autotp_size": 2}})", {},
               on(6)) ==
      "test.json: pipeline.stages 2 x tensor_parallel.autotp_size 2 = 4 does not divide the number "
      "of ranks, 6: change one of them, or start 8 ranks");
}

TEST_CASE("a pipeline is asked for by flags, too") {
  FlagValues flags;
  flags.pipeline_parallel = 2;
  flags.pipeline_schedule = "interleaved";
  flags.virtual_stages = 3;
  const PipelineConfig found = resolve_text("{}", flags, on(2)).config.pipeline;
  CHECK(found.stages == 2);
  CHECK(found.schedule == Schedule::kInterleaved1F1B);
  CHECK(found.virtual_stages == 3);
  CHECK(error_of(pipeline(R"("stages": 4)"), flags, on(4))
            .find("pipeline.stages: 4 in the file, but --pipeline-parallel 2") !=
        std::string::npos);
  flags.pipeline_schedule = "pipedream";
  CHECK(error_of("{}", flags, on(2)).find("--pipeline-schedule: expected") != std::string::npos);
}

TEST_CASE("only schedules of several chunks have virtual stages") {
  for (const char* name : {"1f1b", "gpipe", "zb-h1"}) {
    CHECK(
        error_of(
            pipeline(fmt::format(R"("stages": 2, "schedule": "{}", "virtual_stages": 2)", name)),
            {}, on(2)) ==
        fmt::format("test.json: pipeline.virtual_stages: 2, but \"{}\" has one chunk of blocks per "
                    "stage; \"interleaved\" has several",
                    name));
  }
  CHECK(error_of(pipeline(R"("stages": 2, "schedule": "zbv", "virtual_stages": 3)"), {}, on(2)) ==
        "test.json: pipeline.virtual_stages: 3, but \"zbv\" goes there and back, with 2 chunks of "
        "blocks per stage");
}

TEST_CASE("stages with parameters elsewhere run breadth-first by default") {
  const std::string offload =
      R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})";
  CHECK(resolve_text("{" + offload + R"(, "pipeline": {"stages": 2}})", {}, on(2))
            .config.pipeline.is_breadth_first());
  CHECK_FALSE(resolve_text("{" + offload + "}", {}, on(2)).config.pipeline.is_breadth_first());
  CHECK_FALSE(
      resolve_text("{" + offload + R"(, "pipeline": {"stages": 2, "schedule": "1f1b"}})", {}, on(2))
          .config.pipeline.is_breadth_first());
}

TEST_CASE("an unknown partition or stale weights are refused") {
  CHECK(error_of(pipeline(R"("partition": "layers")")).find("expected \"parameters\"") !=
        std::string::npos);
  CHECK(error_of(pipeline(R"("schedule": "pipedream")")).find("pipeline.schedule") !=
        std::string::npos);
  for (const char* name : {"best", "time", "uniform", "parameters", "type:layer"})
    CHECK(config_of(pipeline(fmt::format(R"("partition": "{}")", name))).pipeline.partition ==
          name);
}

}  // namespace zeroth::configs::pipeline_test
