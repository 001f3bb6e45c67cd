#include "engine/step/expert_loads.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::expert_loads_test {
namespace {

using torch::Tensor;

struct Routed : model::Block {
  Routed(const std::string& label, int64_t count) : Block(label), experts(count) {}
  Tensor forward(const Tensor& x, const model::MicroBatch&) override { return x; }
  int64_t num_experts() const override { return experts; }
  int64_t experts;
};

model::Blocks blocks() {
  return {std::make_shared<Routed>("embedding", 0), std::make_shared<Routed>("layers.0", 2),
          std::make_shared<Routed>("layers.1", 2)};
}

}  // namespace

TEST_CASE("the load balancing loss is that of all blocks and ranks, and one rank reports it") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    ExpertLoads loads(blocks(), *mesh);
    model::MicroBatch batch;
    batch.grad_scale = 4;
    loads.prepare(batch);
    // Of 8 tokens on each of two ranks and in each of two blocks, expert 0 gets 20 of 32.
    const bool first = mesh->rank() == 0;
    batch.router_sums->layers["layers.0"] = {
        .counts = torch::tensor({first ? 6 : 4, first ? 2 : 4}),
        .scores = torch::tensor({5.0F, 3.0F}),
        .tokens = torch::tensor(8),
        .aux_loss_coef = 0.1};
    batch.router_sums->layers["layers.1"] = {.counts = torch::tensor({5, 3}),
                                             .scores = torch::tensor({4.0F, 4.0F}),
                                             .tokens = torch::tensor(8),
                                             .aux_loss_coef = 0.1};
    loads.finish_forward(batch, /*weight=*/first ? 0.25 : 0.5);
    const double share = 20.0 / 32, mean = 18.0 / 32;
    const double expected = 2 * (share * mean + (1 - share) * (1 - mean)) * 0.75;
    CHECK(loads.losses()[0].item<double>() == doctest::Approx(first ? 0.1 * expected : 0));
    CHECK(loads.losses()[1].item<double>() == doctest::Approx(first ? expected : 0));
    const Tensor gradient = batch.router_sums->score_gradient;
    CHECK(gradient[0].item<double>() == doctest::Approx(4 * 0.1 * 0.75 * 2 * share / 32));
    CHECK(gradient[1].item<double>() == doctest::Approx(4 * 0.1 * 0.75 * 2 * (1 - share) / 32));
    const std::vector<double> counts = {first ? 6.0 : 4.0, first ? 2.0 : 4.0, 5, 3};
    CHECK(torch::equal(loads.counts(), torch::tensor(counts, torch::kDouble)));
    CHECK(loads.by_block(counts) ==
          std::vector<std::vector<int64_t>>{{first ? 6 : 4, first ? 2 : 4}, {5, 3}});
    loads.begin_step();
    CHECK(loads.counts().sum().item<double>() == 0);
    CHECK(loads.losses().sum().item<double>() == 0);
  });
}

TEST_CASE("without a coefficient loads are counted alone, and a chain without experts has none") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    ExpertLoads loads(blocks(), *mesh);
    model::MicroBatch batch;
    loads.prepare(batch);
    batch.router_sums->layers["layers.1"] = {
        .counts = torch::tensor({1, 7}), .scores = torch::zeros({2}), .tokens = torch::tensor(8)};
    loads.finish_forward(batch, 1);
    loads.finish_forward(batch, 1);
    CHECK_FALSE(batch.router_sums->score_gradient.defined());
    CHECK(torch::equal(loads.counts(), torch::tensor({0, 0, 2, 14}, torch::kDouble)));
    model::MicroBatch dense;
    const ExpertLoads none({std::make_shared<Routed>("embedding", 0)}, *mesh);
    none.prepare(dense);
    CHECK(dense.router_sums == nullptr);
    CHECK(none.counts().numel() == 0);
  });
}

TEST_CASE("a load balancing loss is refused in a pipeline") {
  const auto grid = comm::MeshShape::data_parallel(1).with(comm::MeshDim::kPp, 2);
  testing::run_ranks(2,
                     [](std::shared_ptr<comm::DeviceMesh> mesh) {
                       ExpertLoads loads(blocks(), *mesh);
                       model::MicroBatch batch;
                       loads.prepare(batch);
                       batch.router_sums->layers["layers.0"] = {.counts = torch::tensor({1, 7}),
                                                                .scores = torch::zeros({2}),
                                                                .tokens = torch::tensor(8),
                                                                .aux_loss_coef = 0.1};
                       CHECK_THROWS_AS(loads.finish_forward(batch, 1), Error);
                       batch.router_sums->layers["layers.0"].aux_loss_coef = 0;
                       CHECK_NOTHROW(loads.finish_forward(batch, 1));
                     },
                     {.grid = grid});
}

}  // namespace zeroth::engine::expert_loads_test
