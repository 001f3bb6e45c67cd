// bf16 training moves fp32 masters: nothing of a small step is lost to the working weights.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/state/run_state.h"
#include "engine/step/step_batches.h"
#include "model/blocks/build_blocks.h"
#include "tests/equivalence/run_row.h"
#include "tests/equivalence/samples.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"

namespace zeroth::equivalence::masters_test {
namespace {

constexpr int64_t kUpdates = 50;
constexpr double kRate = 1e-5;

// An engine in parts, to see a step's gradients before they are applied. One micro-batch a step.
struct Parts {
  Parts(const Row& row, model::Blocks chain, std::shared_ptr<comm::DeviceMesh> ranks)
      : config(config_of(row)),
        mesh(std::move(ranks)),
        blocks(std::move(chain)),
        plan(zero::plan_units(blocks, *mesh)),
        strategy(zero::make_strategy(plan, config, *mesh)),
        rule(optim::make_update_rule(config.optimizer, mesh->device())),
        optimizer(*strategy.optimizer),
        schedule(engine::plan_step(
            engine::PipelinePartition::one_rank(blocks.size(), config.pipeline.schedule), config,
            1)),
        runner(blocks, *strategy.params, *strategy.grads) {}

  // Leaves the step's gradients in strategy.grads, but for a factor, which it returns: it makes
  // them those of the step's mean, and clips them.
  double backward(engine::DataLoader& loader) {
    engine::StepBatches step(loader, 1, mesh->device());
    if (!divisor) divisor = engine::make_loss_normalizer(step.count_positions(), config, *mesh);
    model::MicroBatch batch = step.next();
    batch.loss_normalizer = divisor->divisor(engine::count_label_tokens(batch));
    batch.loss_gradient = torch::ones({}, mesh->device());
    engine::Tape tape(blocks.size());
    strategy.params->set_access_order(engine::block_accesses(schedule));
    strategy.grads->set_backward_order(engine::backward_order(schedule));
    runner.forward(schedule.chunks.front(), {}, batch, tape);
    runner.backward(schedule.chunks.front(), engine::PipeOpKind::kBackward, batch.loss_gradient,
                    batch, tape);
    strategy.params->set_access_order({});
    const torch::Tensor none = torch::zeros({}, mesh->device());
    torch::Tensor totals = engine::pack_totals(
        {none, strategy.grads->finish().sum(), none, torch::zeros({0})}, {.counts = step.counts()});
    mesh->world().all_reduce(totals).wait();
    const engine::StepTotals sums = engine::unpack_totals(totals, 0);
    const double normalization = divisor->normalization(sums.counts);
    const double norm = std::sqrt(sums.squares) * normalization;
    return std::min(1.0, config.gradient_clipping / (norm + 1e-6)) * normalization;
  }

  configs::Config config;
  std::shared_ptr<comm::DeviceMesh> mesh;
  model::Blocks blocks;
  zero::UnitPlan plan;
  zero::Strategy strategy;
  std::unique_ptr<optim::UpdateRule> rule;
  zero::ShardedOptimizer& optimizer;
  engine::StepSchedule schedule;
  engine::BlockRunner runner;
  std::optional<engine::LossNormalizer> divisor;
};

// AdamW in fp32 on copies of a rank's masters, by the rule on whole tensors and by torch::optim.
class Twins {
 public:
  explicit Twins(Parts& parts) : parts_(parts) {
    std::vector<torch::Tensor> theirs;
    for (size_t unit = 0; unit < parts.plan.units.size(); ++unit) {
      const torch::Tensor master = testing::read_master(parts.optimizer, unit);
      by_rule_.push_back(master.clone());
      states_.push_back({at::zeros_like(master), at::zeros_like(master)});
      theirs.push_back(master.clone().requires_grad_());
    }
    by_torch_ = theirs;
    torch_ = std::make_unique<torch::optim::AdamW>(
        theirs, torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  }

  // With the gradients that the parts are about to apply.
  void step(const optim::UpdateStep& step) {
    for (size_t unit = 0; unit < by_rule_.size(); ++unit) {
      const torch::Tensor grad = parts_.strategy.grads->grad(unit);
      by_torch_[unit].mutable_grad() = grad.to(torch::kFloat) * step.grad_factor;
      parts_.rule->apply({by_rule_[unit], grad.clone(), states_[unit]}, step);
    }
    torch_->step();
  }

  void check_equal() {
    for (size_t unit = 0; unit < by_rule_.size(); ++unit) {
      const torch::Tensor master = testing::read_master(parts_.optimizer, unit);
      CHECK(at::equal(master, by_rule_[unit]));
      CHECK(at::allclose(master, by_torch_[unit].detach(), /*rtol=*/1e-6, /*atol=*/1e-8));
    }
  }

 private:
  Parts& parts_;
  std::vector<torch::Tensor> by_rule_;
  std::vector<std::vector<torch::Tensor>> states_;
  std::vector<torch::Tensor> by_torch_;
  std::unique_ptr<torch::optim::AdamW> torch_;
};

SampleLoader loader_of(const comm::DeviceMesh& mesh) {
  return SampleLoader({.rank = mesh.rank(), .world_size = mesh.world_size()});
}

std::vector<torch::Tensor> masters(zero::ShardedOptimizer& optimizer, size_t units) {
  std::vector<torch::Tensor> values;
  for (size_t unit = 0; unit < units; ++unit)
    values.push_back(testing::read_master(optimizer, unit));
  return values;
}

// The masters after kUpdates, each step compared with the twins'.
std::vector<torch::Tensor> train_beside_twins(const Row& row,
                                              const std::shared_ptr<comm::DeviceMesh>& mesh) {
  const model::ModelSpec spec = model::read_model_spec(checkpoint_of(row));
  Parts parts(row, model::build_blocks(spec), mesh);
  engine::load_values({parts.plan, *parts.strategy.store, parts.optimizer}, *weights_of(row, spec));
  const std::vector<torch::Tensor> before = masters(parts.optimizer, parts.plan.units.size());
  Twins twins(parts);
  SampleLoader loader = loader_of(*mesh);
  for (int64_t update = 1; update <= kUpdates; ++update) {
    optim::UpdateStep step = optim::default_step(parts.config.optimizer, update);
    step.grad_factor = parts.backward(loader);
    twins.step(step);
    parts.strategy.params->step(step);
    parts.strategy.grads->reset();
    twins.check_equal();
  }
  const std::vector<torch::Tensor> after = masters(parts.optimizer, parts.plan.units.size());
  // A step of this size is below half a bf16 unit of nearly every weight.
  CHECK((at::cat(after) - at::cat(before)).abs().mean().item<double>() > 1e-4);
  return after;
}

}  // namespace

TEST_CASE("50 small bf16 steps move the masters as fp32 AdamW does with the same gradients") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      Row row = {.precision = configs::Precision::kBf16, .ranks = ranks, .lr = kRate};
      row.zero.stage = stage;
      testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const std::vector<torch::Tensor> expected = train_beside_twins(row, mesh);
        const auto engine = make_row_engine(row, mesh);
        SampleLoader loader = loader_of(*mesh);
        for (int64_t update = 0; update < kUpdates; ++update) engine->train_batch(loader);
        for (size_t unit = 0; unit < expected.size(); ++unit) {
          CHECK(at::equal(testing::read_master(engine->impl().optimizer(), unit), expected[unit]));
        }
      });
    }
  }
}

}  // namespace zeroth::equivalence::masters_test
