#include "zero/grad_reducer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "tests/support/chain.h"
#include "tests/support/ranks.h"
#include "zero/grad_views.h"
#include "zero/param_store.h"

namespace zeroth::zero {
namespace {

using Make = std::unique_ptr<GradReducer> (*)(const UnitPlan&, comm::Group&,
                                              const GradReducerOptions&);

struct Case {
  const char* name;
  Make make;
  Retention retention;
};
const Case kCases[] = {{"whole", make_whole_reducer, Retention::kWhole},
                       {"late scatter", make_late_scatter_reducer, Retention::kRefresh},
                       {"scatter", make_scatter_reducer, Retention::kRefresh}};

// What backward would add in micro-batch `micro` of `rank`: small integers, exact in every dtype.
torch::Tensor contribution(const torch::Tensor& like, int rank, int64_t micro) {
  return (torch::arange(like.numel(), torch::kFloat) % 5 + rank + 2 * static_cast<double>(micro))
      .reshape(like.sizes());
}

// Runs `micros` micro-batches over the chain and returns the sum that every parameter's gradient
// should be.
void run_step(const UnitPlan& plan, GradReducer& grads, int rank, int64_t micros) {
  const torch::NoGradGuard no_grad;
  for (int64_t micro = 0; micro < micros; ++micro) {
    for (size_t block = plan.block_units.size(); block-- > 0;) {
      grads.open(block);
      for (const size_t unit : plan.block_units[block]) {
        for (const torch::Tensor& param : plan.units[unit].params) {
          if (!plan.units[unit].trainable) continue;
          param.mutable_grad().add_(contribution(param, rank, micro));
        }
      }
      grads.add(block, micro + 1 == micros);
    }
  }
}

torch::Tensor expected(const UnitPlan& plan, size_t unit, int ranks, int64_t micros) {
  const torch::Tensor flat = torch::zeros({plan.units[unit].layout.numel()});
  for (size_t i = 0; i < plan.units[unit].params.size(); ++i) {
    const Slot& slot = plan.units[unit].layout.slots()[i];
    const torch::Tensor part = flat.narrow(0, slot.offset, slot.numel);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int64_t micro = 0; micro < micros; ++micro) {
        part.add_(contribution(plan.units[unit].params[i], rank, micro).flatten() *
                  static_cast<double>(plan.units[unit].blocks.size()));
      }
    }
  }
  return flat;
}

}  // namespace

TEST_CASE("every reducer gives the sum over ranks and micro-batches, step after step") {
  for (const Case& reducer : kCases) {
    for (const int ranks : {1, 2, 3}) {
      for (const torch::Dtype wire : {torch::kFloat, torch::kBFloat16}) {
        for (const bool tied : {false, true}) {
          CAPTURE(reducer.name);
          CAPTURE(ranks);
          CAPTURE(tied);
          testing::run_ranks(ranks, [&](std::shared_ptr<comm::Mesh> mesh) {
            const model::Blocks blocks = testing::make_chain({.tied = tied, .frozen = true});
            const UnitPlan plan = plan_units(blocks, ranks);
            ParamStore params(
                plan, mesh->data(), torch::kCPU,
                {.retention = std::vector<Retention>(plan.units.size(), reducer.retention)});
            const auto grads = reducer.make(plan, mesh->data(), {.wire = wire});
            for (const int64_t micros : {1, 3, 2}) {
              run_step(plan, *grads, mesh->rank(), micros);
              double owned = grads->finish().item<double>();
              double squares = 0;
              for (size_t unit = 0; unit < plan.units.size(); ++unit) {
                if (!plan.units[unit].trainable) {
                  CHECK_FALSE(grads->grad(unit).defined());
                  continue;
                }
                const torch::Tensor sum = expected(plan, unit, ranks, micros);
                const Range range = grads->range(unit);
                CHECK(at::equal(grads->grad(unit), sum.narrow(0, range.begin, range.size())));
                squares += sum.square().sum().item<double>();
              }
              const torch::Tensor norm = torch::tensor({owned}, torch::kDouble);
              mesh->data().all_reduce(norm).wait();
              CHECK(norm.item<double>() == doctest::Approx(squares).epsilon(1e-6));
              grads->reset();
            }
          });
        }
      }
    }
  }
}

TEST_CASE("a gradient that accumulates keeps small additions that bf16 would lose") {
  testing::run_ranks(1, [](std::shared_ptr<comm::Mesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = plan_units(blocks, 1);
    ParamStore params(plan, mesh->data(), torch::kCPU,
                      {.retention = std::vector<Retention>(plan.units.size(), Retention::kWhole),
                       .dtype = torch::kBFloat16});
    const auto grads = make_whole_reducer(plan, mesh->data(), {});
    const torch::NoGradGuard no_grad;
    for (int micro = 0; micro < 3; ++micro) {
      grads->open(1);
      plan.units[1].params[0].mutable_grad().add_(
          torch::full_like(plan.units[1].params[0], micro == 0 ? 256.0 : 1.0));
      grads->add(1, micro == 2);
    }
    grads->finish();
    CHECK(grads->grad(1)[0].item<float>() == 258.0f);
  });
}

TEST_CASE("the norm of a large unit is exact to fp32") {
  // Summed in fp32 lanes this one is off by 2e-3.
  const torch::Tensor large = torch::full({(1 << 24) + 3}, 1e-3f);
  large.narrow(0, 0, 1 << 23).fill_(3e-3f);
  const double expected = (1 << 23) * 9e-6 + ((1 << 23) + 3) * 1e-6;
  CHECK(squared_norm({large}, torch::kCPU).item<double>() ==
        doctest::Approx(expected).epsilon(1e-6));
  CHECK(squared_norm({torch::full({3}, 2.0f), torch::zeros({0})}, torch::kCPU).item<double>() ==
        doctest::Approx(12));
}

TEST_CASE("the scatter reducer holds whole gradients for a few blocks only") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const model::Blocks blocks = testing::make_chain({.layers = 40});
    const UnitPlan plan = plan_units(blocks, 2);
    ParamStore params(
        plan, mesh->data(), torch::kCPU,
        {.retention = std::vector<Retention>(plan.units.size(), Retention::kRefresh)});
    const auto scatter = make_scatter_reducer(plan, mesh->data(), {});
    const auto late = make_late_scatter_reducer(plan, mesh->data(), {});
    run_step(plan, *scatter, mesh->rank(), 1);
    scatter->finish();
    CHECK(scatter->resting_bytes() < late->resting_bytes() * 3 / 4);
  });
}

}  // namespace zeroth::zero
