#include "engine/step_batches.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/ranks.h"

namespace zeroth::engine {
namespace {

// Micro-batches of four positions, `trained` of which are.
class Counted final : public Loader {
 public:
  explicit Counted(std::vector<int64_t> trained) : trained_(std::move(trained)) {}
  model::MicroBatch next() override {
    model::MicroBatch batch;
    batch.tokens = torch::zeros({1, 4}, torch::kLong);
    batch.targets = torch::zeros({1, 4}, torch::kLong);
    batch.targets.narrow(1, trained_[drawn_], 4 - trained_[drawn_]).fill_(model::kUntrained);
    ++drawn_;
    return batch;
  }

 private:
  std::vector<int64_t> trained_;
  size_t drawn_ = 0;
};

}  // namespace

TEST_CASE("tokens and micro-batches are counted over all ranks") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Counted data(mesh->rank() == 0 ? std::vector<int64_t>{4, 1} : std::vector<int64_t>{0, 3});
    const StepBatches step = draw_batches(data, 2, *mesh);
    CHECK(step.tokens == 16);
    CHECK(step.trained_tokens == 8);
    CHECK(step.trained_micro_batches == 3);
    CHECK(step.trained_in[1] == (mesh->rank() == 0 ? 1 : 3));
  });
}

TEST_CASE("which targets are trained is known before a device sees them") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    Counted data({4, 1, 0});
    const StepBatches step = draw_batches(data, 3, *mesh);
    CHECK(step.trained_tokens == 5);
    CHECK(torch::equal(step.micro_batches[0].trained_rows, torch::arange(4)));
    CHECK(torch::equal(step.micro_batches[1].trained_rows, torch::zeros({1}, torch::kLong)));
    CHECK(step.micro_batches[2].trained_rows.numel() == 0);
  });
}

TEST_CASE("a mean over tokens divides by all of them, a mean of micro-batches by each one's own") {
  using configs::LossMean;
  const StepBatches step{
      .micro_batches = {}, .trained_in = {4, 0}, .trained_tokens = 10, .trained_micro_batches = 3};
  CHECK(loss_divisor(step, 0, LossMean::kToken) == 10);
  CHECK(loss_divisor(step, 1, LossMean::kToken) == 10);
  CHECK(loss_divisor(step, 0, LossMean::kMicroBatch) == 12);
  CHECK(loss_divisor(step, 1, LossMean::kMicroBatch) > 0);
}

}  // namespace zeroth::engine
