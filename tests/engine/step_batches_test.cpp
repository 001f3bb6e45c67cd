#include "engine/step/step_batches.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/ranks.h"

namespace zeroth::engine::step_batches_test {
namespace {

// Micro-batches of four positions, `trained` of which are.
class Counted final : public DataLoader {
 public:
  explicit Counted(std::vector<int64_t> trained) : trained_(std::move(trained)) {}
  model::MicroBatch next() override {
    ++calls_;
    const int64_t trained = trained_.at(drawn_);
    model::MicroBatch batch;
    batch.tokens = torch::zeros({1, 4}, torch::kLong);
    batch.targets = torch::zeros({1, 4}, torch::kLong);
    batch.targets.narrow(1, trained, 4 - trained).fill_(model::kIgnoreIndex);
    batch.samples = {static_cast<int64_t>(drawn_++)};
    return batch;
  }
  int64_t drawn() const { return static_cast<int64_t>(drawn_); }
  int64_t calls() const { return calls_; }

 private:
  std::vector<int64_t> trained_;
  size_t drawn_ = 0;
  int64_t calls_ = 0;
};

}  // namespace

TEST_CASE("positions, trained tokens and micro-batches that have one are counted") {
  Counted data({0, 3, 1});
  StepBatches step(data, 3, torch::kCPU);
  std::vector<int64_t> trained;
  for (int i = 0; i < 3; ++i) trained.push_back(count_label_tokens(step.next()));
  CHECK(trained == std::vector<int64_t>{0, 3, 1});
  CHECK(step.counts().tokens == 12);
  CHECK(step.counts().num_label_tokens == 4);
  CHECK(step.counts().num_label_micro_batches == 2);
  CHECK(step.first_samples() == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("which targets are trained is known before a device sees them") {
  Counted data({4, 1, 0});
  StepBatches step(data, 3, torch::kCPU);
  CHECK(torch::equal(step.next().label_indices, torch::arange(4)));
  CHECK(torch::equal(step.next().label_indices, torch::zeros({1}, torch::kLong)));
  CHECK(step.next().label_indices.numel() == 0);
}

TEST_CASE("a loader that cannot count is taken to have micro-batches like its first one") {
  Counted data({4, 1, 0});
  StepBatches step(data, 3, torch::kCPU);
  CHECK(step.count_positions() == 12);
  CHECK(data.drawn() == 1);
  CHECK(step.next().samples == std::vector<int64_t>{0});
  CHECK(step.next().samples == std::vector<int64_t>{1});
  CHECK(data.drawn() == 2);
}

TEST_CASE("a loader may use the memory of its micro-batches again") {
  struct Reusing final : DataLoader {
    model::MicroBatch next() override {
      memory.add_(1);
      model::MicroBatch batch;
      batch.tokens = batch.targets = batch.positions = batch.first_keys = memory;
      return batch;
    }
    torch::Tensor memory = torch::zeros({1, 4}, torch::kLong);
  } data;
  StepBatches step(data, 2, torch::kCPU);
  const model::MicroBatch first = step.next(), second = step.next();
  for (const auto& [batch, value] : {std::pair(first, 1), std::pair(second, 2)}) {
    for (const torch::Tensor& tensor :
         {batch.tokens, batch.targets, batch.positions, batch.first_keys})
      CHECK(torch::equal(tensor, torch::full({1, 4}, value, torch::kLong)));
  }
}

TEST_CASE("what a step that throws has not drawn is skipped, but where the loader threw") {
  Counted data({4, 1, 0, 2});
  StepBatches interrupted(data, 3, torch::kCPU);
  interrupted.next();
  interrupted.skip_remaining();
  CHECK(data.drawn() == 3);
  StepBatches step(data, 2, torch::kCPU);
  CHECK(step.next().samples == std::vector<int64_t>{3});
  CHECK_THROWS(step.next());  // Counted has no more
  const int64_t calls = data.calls();
  step.skip_remaining();
  CHECK(data.calls() == calls);
}

TEST_CASE("the samples of a long step are listed up to a limit, and counted") {
  Counted data(std::vector<int64_t>(StepBatches::kMaxListed + 5, 1));
  StepBatches step(data, StepBatches::kMaxListed + 5, torch::kCPU);
  for (int64_t i = 0; i < StepBatches::kMaxListed + 5; ++i) step.next();
  CHECK(std::ssize(step.first_samples()) == StepBatches::kMaxListed);
  CHECK(step.first_samples().back() == StepBatches::kMaxListed - 1);
  CHECK(step.num_samples() == StepBatches::kMaxListed + 5);
}

TEST_CASE("ranks divide by what the first step has together, and correct it by what is trained") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    configs::Config config;
    config.batch.accumulation_steps = 2;
    config.loss_mean = configs::LossMean::kToken;
    const LossNormalizer by_token = make_loss_normalizer(/*positions=*/8, config, *mesh);
    CHECK(by_token.divisor(1) == 16);
    CHECK(by_token.divisor(1) / by_token.normalization({.num_label_tokens = 8}) == 8);
    CHECK(by_token.normalization({.num_label_tokens = 16}) == 1);
    config.loss_mean = configs::LossMean::kMicroBatch;
    const LossNormalizer by_micro_batch = make_loss_normalizer(/*positions=*/8, config, *mesh);
    // The mean of three means, one of them over 3 tokens.
    CHECK(by_micro_batch.divisor(3) /
              by_micro_batch.normalization({.num_label_micro_batches = 3}) ==
          9);
    CHECK(by_micro_batch.divisor(0) > 0);
  });
}

TEST_CASE("what the ranks tell each other at a step's end adds up, field by field") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const int64_t one = mesh->rank() + 1;
    const StepTotals own = {.flags = {.stop_requests = one == 2,
                                      .save_requests = one,
                                      .writing = 5 * one,
                                      .unused = one == 1},
                            .counts = {.tokens = int64_t{1} << 50,
                                       .num_label_tokens = 10 * one,
                                       .num_label_micro_batches = one}};
    const auto half = torch::full({}, 0.5, torch::kDouble), third = torch::full({}, one / 4.0);
    const torch::Tensor experts = torch::tensor({one, 7 * one}, torch::kDouble);
    const torch::Tensor totals =
        pack_totals({half, third.to(torch::kFloat), 3 * half, experts}, own);
    mesh->world().all_reduce(totals).wait();
    const StepTotals sums = unpack_totals(totals, 2);
    CHECK(sums.loss == 1);
    CHECK(sums.aux_loss == 3);
    CHECK(sums.expert_counts == std::vector<double>{3, 21});
    CHECK(sums.pipe_idle.empty());
    CHECK(sums.squares == 0.75);
    CHECK(sums.flags.stop_requests == 1);
    CHECK(sums.flags.save_requests == 3);
    CHECK(sums.flags.unused == 1);
    CHECK(sums.flags.writing == 15);
    CHECK(sums.counts.tokens == int64_t{1} << 51);
    CHECK(sums.counts.num_label_tokens == 30);
    CHECK(sums.counts.num_label_micro_batches == 3);
  });
}

}  // namespace zeroth::engine::step_batches_test
