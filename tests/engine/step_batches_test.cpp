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
    batch.samples = {static_cast<int64_t>(drawn_++)};
    return batch;
  }

 private:
  std::vector<int64_t> trained_;
  size_t drawn_ = 0;
};

}  // namespace

TEST_CASE("positions, trained tokens and micro-batches that have one are counted") {
  Counted data({0, 3, 1});
  const StepBatches step = draw_batches(data, 3, torch::kCPU);
  CHECK(step.counts.tokens == 12);
  CHECK(step.counts.trained_tokens == 4);
  CHECK(step.counts.trained_micro_batches == 2);
  CHECK(step.trained_in == std::vector<int64_t>{0, 3, 1});
  CHECK(step.samples == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("which targets are trained is known before a device sees them") {
  Counted data({4, 1, 0});
  const StepBatches step = draw_batches(data, 3, torch::kCPU);
  CHECK(torch::equal(step.micro_batches[0].trained_rows, torch::arange(4)));
  CHECK(torch::equal(step.micro_batches[1].trained_rows, torch::zeros({1}, torch::kLong)));
  CHECK(step.micro_batches[2].trained_rows.numel() == 0);
}

TEST_CASE("ranks divide by what the first step has together, and correct it by what is trained") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    Counted data(mesh->rank() == 0 ? std::vector<int64_t>{4, 1} : std::vector<int64_t>{0, 3});
    const StepBatches first = draw_batches(data, 2, torch::kCPU);
    configs::Config config;
    config.batch.accumulation_steps = 2;
    config.loss_mean = configs::LossMean::kToken;
    const LossDivisor by_token = agree_on_divisor(first, config, *mesh);
    CHECK(by_token.of(1) == 16);
    CHECK(by_token.of(1) / by_token.correction({.trained_tokens = 8}) == 8);
    CHECK(by_token.correction({.trained_tokens = 16}) == 1);
    config.loss_mean = configs::LossMean::kMicroBatch;
    const LossDivisor by_micro_batch = agree_on_divisor(first, config, *mesh);
    // The mean of three means, one of them over 3 tokens.
    CHECK(by_micro_batch.of(3) / by_micro_batch.correction({.trained_micro_batches = 3}) == 9);
    CHECK(by_micro_batch.of(0) > 0);
  });
}

TEST_CASE("what the ranks tell each other at a step's end adds up, field by field") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const int64_t one = mesh->rank() + 1;
    const StepSums own = {
        .ends = one == 2,
        .saves = one,
        .writing = 5 * one,
        .unused = one == 1,
        .counts = {
            .tokens = int64_t{1} << 50, .trained_tokens = 10 * one, .trained_micro_batches = one}};
    const auto half = torch::full({}, 0.5, torch::kDouble), third = torch::full({}, one / 4.0);
    const torch::Tensor told = to_tensor(half, third.to(torch::kFloat), own);
    mesh->world().all_reduce(told).wait();
    const StepSums sums = from_tensor(told);
    CHECK(sums.loss == 1);
    CHECK(sums.squares == 0.75);
    CHECK(sums.ends == 1);
    CHECK(sums.saves == 3);
    CHECK(sums.unused == 1);
    CHECK(sums.writing == 15);
    CHECK(sums.counts.tokens == int64_t{1} << 51);
    CHECK(sums.counts.trained_tokens == 30);
    CHECK(sums.counts.trained_micro_batches == 3);
  });
}

}  // namespace zeroth::engine
