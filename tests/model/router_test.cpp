#include "model/blocks/router.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::router_test {
namespace {

using torch::Tensor;

// A router whose logits are its tokens.
struct Fixed {
  explicit Fixed(const RouterSpec& router, int64_t experts, int64_t top_k, double coefficient = 0) {
    spec.hidden_size = experts;
    spec.num_layers = 1;
    spec.experts = ExpertsSpec{.num_experts = experts,
                               .top_k = top_k,
                               .intermediate_size = 1,
                               .router = router,
                               .aux_loss_coef = coefficient};
    block = std::make_shared<Router>(spec, "layers.0", nullptr);
    parameters = randomise(*block);
    const torch::NoGradGuard no_grad;
    parameters["weight"].copy_(torch::eye(experts));
    if (parameters.contains("bias")) parameters["bias"].zero_();
  }

  Router::Choice route(const Tensor& logits, const MicroBatch& batch = {}) const {
    return block->forward(logits, batch);
  }

  ModelSpec spec;
  std::shared_ptr<Router> block;
  Parameters parameters;
};

std::vector<int64_t> sorted(const Tensor& experts) {
  const Tensor row = std::get<0>(experts.sort());
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

}  // namespace

TEST_CASE("weights are probabilities of the chosen, or divided by their sum, and scaled") {
  const Tensor logits = torch::tensor({{1.0F, 3.0F, 2.0F, -1.0F}});
  const Tensor probabilities = logits.softmax(-1);
  const auto plain = Fixed({.normalize = false}, 4, 2).route(logits);
  CHECK(sorted(plain.experts[0]) == std::vector<int64_t>{1, 2});
  CHECK(difference(plain.weights, probabilities.gather(1, plain.experts)) < 1e-6);
  const auto normalized = Fixed({.scale = 2.5}, 4, 2).route(logits);
  CHECK(normalized.weights.sum().item<double>() == doctest::Approx(2.5));
  const auto floored = Fixed({.min_sum = 4}, 4, 2).route(logits);
  CHECK(difference(floored.weights, plain.weights / 4) < 1e-6);
  const auto sigmoid =
      Fixed({.score = RouterScore::kSigmoid, .normalize = false}, 4, 1).route(logits);
  CHECK(sigmoid.weights.item<double>() == doctest::Approx(1 / (1 + std::exp(-3.0))));
}

TEST_CASE("a correction bias changes the choice and not the weights") {
  Fixed router({.score = RouterScore::kSigmoid, .correction_bias = true, .normalize = false}, 3, 1);
  CHECK_FALSE(router.parameters["correction_bias"].requires_grad());
  router.parameters["correction_bias"].copy_(torch::tensor({5.0F, 0.0F, 0.0F}));
  const auto choice = router.route(torch::tensor({{-1.0F, 2.0F, 0.0F}}));
  CHECK(choice.experts.item<int64_t>() == 0);
  CHECK(choice.weights.item<double>() == doctest::Approx(1 / (1 + std::exp(1.0))));
}

TEST_CASE("groups are kept by their best expert, or by their two best") {
  const Tensor logits = torch::tensor({{5.0F, -5.0F, 4.0F, 3.9F, 0.0F, 0.0F}});
  const RouterSpec by_best = {.groups = 3, .kept_groups = 1, .groups_by_two = false};
  CHECK(sorted(Fixed(by_best, 6, 2).route(logits).experts[0]) == std::vector<int64_t>{0, 1});
  const RouterSpec by_two = {
      .score = RouterScore::kSigmoid, .groups = 3, .kept_groups = 1, .groups_by_two = true};
  CHECK(sorted(Fixed(by_two, 6, 2).route(logits).experts[0]) == std::vector<int64_t>{2, 3});
}

TEST_CASE("in training the tokens of each expert are counted, and scores get their gradient") {
  const Fixed router({.normalize = false}, 3, 1, /*coefficient=*/0.5);
  const Tensor logits = torch::tensor({{2.0F, 0.0F, 0.0F}, {0.0F, 1.0F, 0.0F}, {3.0F, 0.0F, 1.0F}});
  MicroBatch batch;
  batch.router_sums = std::make_shared<RouterSums>();
  const Tensor x = logits.clone().requires_grad_();
  const auto choice = router.route(x, batch);
  const RouterSums::Layer& layer = batch.router_sums->layers.at("layers.0");
  CHECK(torch::equal(layer.counts, torch::tensor({2, 1, 0}, torch::kLong)));
  CHECK(difference(layer.scores, logits.softmax(-1).sum(0)) < 1e-6);
  CHECK(layer.tokens.item<int64_t>() == 3);
  CHECK(layer.aux_loss_coef == 0.5);
  batch.router_sums->score_gradient = torch::tensor({0.5F, -1.0F, 2.0F});
  (choice.weights * 0).sum().backward();
  const Tensor expected_x = logits.clone().requires_grad_();
  (expected_x.softmax(-1) * batch.router_sums->score_gradient).sum().backward();
  CHECK(difference(x.grad(), expected_x.grad()) < 1e-6);
}

TEST_CASE("positions that fill a row count neither as tokens nor in the gradient") {
  const Fixed router({.normalize = false}, 3, 1, /*coefficient=*/0.5);
  const Tensor logits = torch::tensor({{2.0F, 0.0F, 0.0F}, {0.0F, 1.0F, 0.0F}, {3.0F, 0.0F, 1.0F}});
  MicroBatch batch;
  batch.tokens = torch::zeros({1, 3}, torch::kLong);
  batch.attention_mask = torch::tensor({{true, true, false}});
  batch.router_sums = std::make_shared<RouterSums>();
  const Tensor x = logits.clone().requires_grad_();
  const auto choice = router.route(x, batch);
  const RouterSums::Layer& layer = batch.router_sums->layers.at("layers.0");
  CHECK(torch::equal(layer.counts, torch::tensor({1, 1, 0}, torch::kLong)));
  CHECK(difference(layer.scores, logits.softmax(-1).narrow(0, 0, 2).sum(0)) < 1e-6);
  CHECK(layer.tokens.item<int64_t>() == 2);
  batch.router_sums->score_gradient = torch::tensor({0.5F, -1.0F, 2.0F});
  (choice.weights * 0).sum().backward();
  CHECK(x.grad().narrow(0, 0, 2).abs().min().item<double>() > 0);
  CHECK(x.grad()[2].abs().max().item<double>() == 0);
}

TEST_CASE("a rank without tokens counts none, whatever the mask") {
  ModelSpec spec;
  spec.hidden_size = 3;
  spec.experts = ExpertsSpec{.num_experts = 3, .top_k = 1};
  const auto tp =
      std::make_shared<TensorParallel>(/*rank=*/3, /*size=*/4, TensorParallel::CommOptions{});
  const Router router(spec, "layers.0", tp);
  Parameters parameters = randomise(router);
  MicroBatch batch;
  batch.tokens = torch::zeros({1, 5}, torch::kLong);  // shards of two
  batch.attention_mask = torch::ones({1, 5}, torch::kBool);
  batch.router_sums = std::make_shared<RouterSums>();
  router.forward(torch::rand({2, 3}), batch);
  const RouterSums::Layer& layer = batch.router_sums->layers.at("layers.0");
  CHECK(layer.tokens.item<int64_t>() == 0);
  CHECK(layer.counts.sum().item<int64_t>() == 0);
}

}  // namespace zeroth::model::router_test
