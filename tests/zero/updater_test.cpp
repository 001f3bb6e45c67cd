#include "zero/updater.h"

#include <doctest/doctest.h>

#include "tests/support/late_copies.h"

namespace zeroth::zero {
namespace {

using Step = configs::OffloadOptimizerConfig::Step;

configs::Config adam(configs::Precision precision, int64_t accumulation) {
  configs::Config config;
  config.precision = precision;
  config.batch = {accumulation, 1, accumulation};
  return config;
}

}  // namespace

TEST_CASE("an element's bytes are those of its states, master, gradient and working weight") {
  const offload::StepBytes fp32 = bytes_per_element(adam(configs::Precision::kFp32, 1));
  CHECK(fp32.states == 8);
  CHECK(fp32.parameter == 4);
  CHECK(fp32.gradient == 4);
  const offload::StepBytes bf16 = bytes_per_element(adam(configs::Precision::kBf16, 1));
  CHECK(bf16.states == 12);
  CHECK(bf16.parameter == 2);
  CHECK(bf16.gradient == 2);
  CHECK(bytes_per_element(adam(configs::Precision::kBf16, 4)).gradient == 4);
}

TEST_CASE("step cpu and step gpu are not measured") {
  const comm::Mesh mesh(torch::kCPU, comm::make_solo_group());
  const auto link = testing::late_link();
  std::vector<std::string> notes;
  configs::Config config = adam(configs::Precision::kBf16, 1);
  config.zero.offload_optimizer.step = Step::kCpu;
  CHECK_FALSE(updates_on_device(config, mesh, *link, notes));
  config.zero.offload_optimizer.step = Step::kGpu;
  CHECK(updates_on_device(config, mesh, *link, notes));
  CHECK(notes.empty());
  CHECK(testing::copies_of(*link).copies() == 0);
}

TEST_CASE("step auto measures the link and the host, and says what came out") {
  const comm::Mesh mesh(torch::kCPU, comm::make_solo_group());
  const auto link = testing::late_link();
  std::vector<std::string> notes;
  configs::Config config = adam(configs::Precision::kBf16, 1);
  config.zero.offload_optimizer.step = Step::kAuto;
  const bool on_device = updates_on_device(config, mesh, *link, notes);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find(on_device ? "updates on the GPU: " : "updates on the host: ") == 0);
  CHECK(testing::copies_of(*link).copies() >= 4);
}

}  // namespace zeroth::zero
