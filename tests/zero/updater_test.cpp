#include "zero/updater.h"

#include <doctest/doctest.h>

#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"

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
  configs::Config fp32 = adam(configs::Precision::kFp32, 1);
  configs::Config bf16 = adam(configs::Precision::kBf16, 1);
  CHECK(bytes_per_element(fp32).parameter == 4);
  CHECK(bytes_per_element(fp32).to_device == 8 + 4);
  CHECK(bytes_per_element(fp32).to_host == 8);
  CHECK(bytes_per_element(bf16).parameter == 2);
  CHECK(bytes_per_element(bf16).to_device == 12 + 2);
  CHECK(bytes_per_element(bf16).to_host == 12);
  CHECK(bytes_per_element(adam(configs::Precision::kBf16, 4)).to_device == 12 + 4);
  // Parameters that rest on the host come and go, too: without a master they are it.
  fp32.zero.offload_param.device = configs::RestingPlace::kCpu;
  bf16.zero.offload_param.device = configs::RestingPlace::kCpu;
  CHECK(bytes_per_element(fp32).to_device == 8 + 4 + 4);
  CHECK(bytes_per_element(fp32).to_host == 8 + 4);
  CHECK(bytes_per_element(bf16).to_device == 12 + 2);
  CHECK(bytes_per_element(bf16).to_host == 12 + 2);
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

TEST_CASE("several ranks measure together and choose the same") {
  std::vector<std::string> reasons(3);
  testing::run_ranks(3, [&](const std::shared_ptr<comm::Mesh>& mesh) {
    const auto link = testing::late_link();
    std::vector<std::string> notes;
    configs::Config config = adam(configs::Precision::kBf16, 1);
    config.zero.offload_optimizer.step = Step::kAuto;
    updates_on_device(config, *mesh, *link, notes);
    reasons[static_cast<size_t>(mesh->rank())] = notes.at(0);
  });
  CHECK(reasons[1] == reasons[0]);
  CHECK(reasons[2] == reasons[0]);
}

}  // namespace zeroth::zero
