#include "zero/grad_reducer.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "model/blocks/main_grad.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "zero/gradient_offload.h"
#include "zero/param_store.h"

namespace zeroth::zero::grad_reducer_test {
namespace {

struct Case {
  const char* name;
  ReducerKind kind;
};
const Case kCases[] = {{"whole", ReducerKind::kFull},
                       {"late scatter", ReducerKind::kLateScatter},
                       {"scatter", ReducerKind::kScatter}};

struct OptionsCase {
  const char* name;
  GradReducerOptions options;
  bool lands = false;  // on the host, through buffers smaller than a unit
};

GradReducerOptions options_of(const OptionsCase& options, int rank) {
  GradReducerOptions result = options.options;
  if (!options.lands) return result;
  const auto link = testing::late_link(static_cast<uint64_t>(rank));
  const GradientOffloadOptions pieces = {.chunk_bytes = 400};
  result.gradient_offload = std::make_shared<GradientOffload>(link, pieces);
  return result;
}
// Pieces as small as they get; smaller than a unit and no divisor of it; a unit at a time; all.
const OptionsCase kOptions[] = {
    {"fp32", {}},
    {"bf16 wire", {.wire = torch::kBFloat16}},
    {"fp16 wire, no overlap", {.wire = torch::kHalf, .max_in_flight = 0}},
    {"bucket of 1", {.bucket_elements = 1}},
    {"bucket of 300", {.bucket_elements = 300}},
    {"bucket of 300, bf16 wire", {.wire = torch::kBFloat16, .bucket_elements = 300}},
    {"all-reduce", {.reduce_scatter = false}},
    {"all-reduce in pieces",
     {.wire = torch::kBFloat16, .reduce_scatter = false, .bucket_elements = 100}},
    {"all in bf16", {.wire = torch::kBFloat16, .accumulation = torch::kBFloat16}},
    {"bf16 sums, fp32 wire", {.accumulation = torch::kBFloat16, .bucket_elements = 129}},
    {"landing", {}, true},
    {"landing, bf16 wire", {.wire = torch::kBFloat16, .bucket_elements = 300}, true},
    {"landing, all in bf16", {.wire = torch::kBFloat16, .accumulation = torch::kBFloat16}, true},
    {"landing, no overlap", {.max_in_flight = 0, .bucket_elements = 129}, true},
    {"landing, all-reduce",
     {.wire = torch::kHalf, .reduce_scatter = false, .bucket_elements = 100},
     true}};

// What backward would add in micro-batch `micro` of `rank`: small integers, exact in every dtype.
torch::Tensor contribution(const torch::Tensor& like, int rank, int64_t micro) {
  return (torch::arange(like.numel(), torch::kFloat) % 5 + rank + 2 * static_cast<double>(micro))
      .reshape(like.sizes());
}

// Runs `micros` micro-batches over the chain, one after the other or each block with all of them.
void run_step(const UnitPlan& plan, GradReducer& grads, int rank, int64_t micros,
              bool breadth_first) {
  const torch::NoGradGuard no_grad;
  const size_t blocks = plan.block_units.size();
  std::vector<size_t> order = testing::backward_order(blocks, micros);
  if (breadth_first) std::ranges::stable_sort(order, std::greater<>());
  grads.set_backward_order(order);
  std::vector<int64_t> passes(blocks);
  for (const size_t block : order) {
    grads.open(block);
    for (const size_t unit : plan.block_units[block]) {
      for (const torch::Tensor& param : plan.units[unit].params) {
        if (!plan.units[unit].trainable) continue;
        model::accumulate_grad(param, contribution(param, rank, passes[block]));
      }
    }
    grads.add(block);
    ++passes[block];
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
      for (const OptionsCase& options : kOptions) {
        for (const bool tied : {false, true}) {
          CAPTURE(reducer.name);
          CAPTURE(options.name);
          CAPTURE(ranks);
          CAPTURE(tied);
          testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
            const model::Blocks blocks =
                testing::make_chain({.hidden = 20, .tied = tied, .frozen = true});
            UnitPlan plan = plan_units(blocks, *mesh);
            // Some begin their gradients in what lies there, others in zeros.
            for (size_t unit = 0; unit < plan.units.size(); ++unit) {
              plan.units[unit].begins_gradients = unit % 2 == 0;
            }
            ParamStore params(plan, *mesh, torch::kCPU, {});
            const auto grads =
                make_grad_reducer(reducer.kind, plan, *mesh, options_of(options, mesh->rank()));
            for (const int64_t micros : {1, 3, -3, 2, -2}) {  // negative: breadth first
              const int64_t count = std::abs(micros);
              run_step(plan, *grads, mesh->rank(), count, /*breadth_first=*/micros < 0);
              double owned = grads->finish().sum().item<double>();
              double squares = 0;
              for (size_t unit = 0; unit < plan.units.size(); ++unit) {
                if (!plan.units[unit].trainable) {
                  CHECK_FALSE(grads->grad(unit).defined());
                  continue;
                }
                const torch::Tensor sum = expected(plan, unit, ranks, count);
                const Range range = grads->range(unit);
                CHECK(at::equal(grads->grad(unit).to(torch::kFloat),
                                sum.narrow(0, range.begin, range.size())));
                squares += sum.square().sum().item<double>();
              }
              const torch::Tensor norm = torch::tensor({owned}, torch::kDouble);
              mesh->dp_group().all_reduce(norm).wait();
              CHECK(norm.item<double>() == doctest::Approx(squares).epsilon(1e-6));
              grads->reset();
            }
          });
        }
      }
    }
  }
}

TEST_CASE("a parameter that backward leaves out has a gradient of zero and is known") {
  for (const Case& reducer : kCases) {
    for (const bool begins : {false, true}) {
      CAPTURE(reducer.name);
      CAPTURE(begins);
      testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const torch::NoGradGuard no_grad;
        const model::Blocks blocks = testing::make_chain({.layers = 1});
        UnitPlan plan = plan_units(blocks, *mesh);
        for (Unit& unit : plan.units) unit.begins_gradients = begins;
        ParamStore params(plan, *mesh, torch::kCPU, {});
        const auto grads = make_grad_reducer(reducer.kind, plan, *mesh, {});
        for (const bool bias_used : {true, false, true}) {
          grads->set_backward_order(testing::backward_order(3, 1));
          for (size_t block = 3; block-- > 0;) {
            grads->open(block);
            const std::vector<torch::Tensor>& own = plan.units[block].params;
            model::accumulate_grad(own[0], torch::ones_like(own[0]));
            if (bias_used && block == 1) model::accumulate_grad(own[1], torch::ones_like(own[1]));
            grads->add(block);
          }
          grads->finish();
          CHECK(grads->got_gradient(1, 0));
          CHECK(grads->got_gradient(1, 1) == bias_used);
          const Slot& bias = plan.units[1].layout.slots()[1];
          const Range part = plan.units[1].layout.overlap(1, grads->range(1));
          if (part.size() > 0) {
            const int64_t begin = bias.offset + part.begin - grads->range(1).begin;
            CHECK(grads->grad(1)
                      .narrow(0, begin, part.size())
                      .eq(bias_used ? 2 : 0)
                      .all()
                      .item<bool>());
          }
          grads->reset();
          CHECK_FALSE(grads->got_gradient(1, 0));
        }
      });
    }
  }
}

TEST_CASE("two ranks sum to the same bits in pieces of any size, scattered or not") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain({.hidden = 24});
    const UnitPlan plan = plan_units(blocks, *mesh);
    ParamStore params(plan, *mesh, torch::kCPU, {});
    std::vector<torch::Tensor> first;
    for (const OptionsCase& options : kOptions) {
      if (options.options.wire != torch::kFloat || options.options.accumulation != torch::kFloat)
        continue;
      CAPTURE(options.name);
      const auto grads =
          make_grad_reducer(ReducerKind::kScatter, plan, *mesh, options_of(options, mesh->rank()));
      const torch::NoGradGuard no_grad;
      grads->set_backward_order(testing::backward_order(blocks.size(), 1));
      for (size_t block = blocks.size(); block-- > 0;) {
        grads->open(block);
        for (const torch::Tensor& param : blocks[block]->parameters()) {
          const torch::Tensor counter = torch::arange(param.numel(), torch::kFloat);
          param.mutable_grad().add_((counter * (1.7 + mesh->rank())).sin().reshape(param.sizes()));
        }
        grads->add(block);
      }
      grads->finish();
      for (size_t unit = 0; unit < plan.units.size(); ++unit) {
        if (first.size() <= unit) first.push_back(grads->grad(unit).clone());
        CHECK(at::equal(grads->grad(unit), first[unit]));
      }
    }
  });
}

TEST_CASE("a gradient that accumulates keeps small additions that bf16 would lose") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    const UnitPlan plan = plan_units(blocks, *mesh);
    ParamStore params(plan, *mesh, torch::kCPU, {.dtype = torch::kBFloat16});
    const torch::NoGradGuard no_grad;
    // The scatter reducer sums a run of micro-batches before it rounds them for the wire.
    for (const ReducerKind kind : {ReducerKind::kFull, ReducerKind::kScatter}) {
      const auto grads = make_grad_reducer(kind, plan, *mesh, {.wire = torch::kBFloat16});
      grads->set_backward_order({1, 1, 1});
      for (int micro = 0; micro < 3; ++micro) {
        grads->open(1);
        plan.units[1].params[0].mutable_grad().add_(
            torch::full_like(plan.units[1].params[0], micro == 0 ? 256.0 : 1.0));
        grads->add(1);
      }
      grads->finish();
      CHECK(grads->grad(1)[0].item<float>() == 258.0f);
    }
  });
}

TEST_CASE("the scatter reducer holds whole gradients for a few blocks only") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const model::Blocks blocks = testing::make_chain({.layers = 40});
    const UnitPlan plan = plan_units(blocks, *mesh);
    ParamStore params(plan, *mesh, torch::kCPU, {});
    const auto scatter = make_grad_reducer(ReducerKind::kScatter, plan, *mesh, {});
    const auto late = make_grad_reducer(ReducerKind::kLateScatter, plan, *mesh, {});
    run_step(plan, *scatter, mesh->rank(), 1, /*breadth_first=*/false);
    scatter->finish();
    CHECK(scatter->persistent_bytes() < late->persistent_bytes() * 3 / 4);
  });
}

}  // namespace zeroth::zero::grad_reducer_test
