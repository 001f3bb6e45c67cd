#include "model/blocks/embedding.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <string>

#include "base/error.h"
#include "tests/model/materialize.h"

namespace zeroth::model::embedding_test {
namespace {

using torch::Tensor;

ModelSpec small(bool learned_positions) {
  ModelSpec spec;
  spec.vocab_size = 5;
  spec.hidden_size = 3;
  spec.max_positions = 4;
  spec.learned_positions = learned_positions;
  return spec;
}

MicroBatch batch(const Tensor& tokens) {
  MicroBatch result;
  result.tokens = tokens;
  return result;
}

}  // namespace

TEST_CASE("a token's vector is its row; a row used twice gets both gradients") {
  for (const bool open : {false, true}) {
    Embedding embedding(small(false));
    Parameters parameters = randomise(embedding);
    if (open) define_main_grads(parameters);
    const Tensor y = embedding.forward({}, batch(torch::tensor({{1, 4, 1}})));
    CHECK(torch::equal(y[0][1].detach(), embedding.weight()[4].detach()));
    const Tensor dy = torch::randn({1, 3, 3});
    y.backward(dy);
    const Tensor gradient = parameters["weight"].grad();
    CHECK(torch::equal(gradient[1], dy[0][0] + dy[0][2]));
    CHECK(torch::equal(gradient[4], dy[0][1]));
    CHECK(torch::equal(gradient[0], torch::zeros({3})));
  }
}

TEST_CASE("the gradient of a token seen 400 times keeps growing in 16 bits") {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    Embedding embedding(small(false));
    Parameters parameters = randomise(embedding);
    give_memory(parameters["weight"], parameters["weight"].detach().to(dtype));
    define_main_grads(parameters, dtype);
    const Tensor y = embedding.forward({}, batch(torch::full({4, 100}, 3)));
    y.backward(torch::ones_like(y));
    const Tensor gradient = parameters["weight"].grad();
    CHECK(torch::equal(gradient[3], torch::full({3}, 400.0, dtype)));
    CHECK(torch::equal(gradient[2], torch::zeros({3}, dtype)));
  }
}

TEST_CASE("pad_token_id: the padding token's row gets no gradient from the lookup, in any dtype") {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kHalf}) {
    for (const bool open : {false, true}) {
      ModelSpec spec = small(false);
      spec.padding_token = 4;
      Embedding embedding(spec);
      Parameters parameters = randomise(embedding);
      give_memory(parameters["weight"], parameters["weight"].detach().to(dtype));
      if (open) define_main_grads(parameters, dtype);
      Tensor dy = torch::ones({1, 3, 3}, dtype);
      dy[0][1][0] = std::numeric_limits<float>::quiet_NaN();
      for (const int64_t micro_batch : {1, 2}) {
        const Tensor y = embedding.forward({}, batch(torch::tensor({{1, 4, 1}})));
        CHECK(torch::equal(y[0][1].detach(), embedding.weight()[4].detach()));
        y.backward(dy);
        const Tensor gradient = parameters["weight"].grad();
        CHECK(torch::equal(gradient[4], torch::zeros({3}, dtype)));
        CHECK(torch::equal(gradient[1], torch::full({3}, 2 * micro_batch, dtype)));
      }
    }
  }
}

TEST_CASE("trained positions are added, given or counted, and get their gradients") {
  Embedding embedding(small(true));
  Parameters parameters = randomise(embedding);
  MicroBatch two = batch(torch::zeros({2, 3}, torch::kInt64));
  const Tensor counted = embedding.forward({}, two);
  const Tensor expected = parameters["weight"][0] + parameters["positions"].narrow(0, 0, 3);
  CHECK(torch::equal(counted[1].detach(), expected.detach()));
  counted.sum().backward();
  CHECK(torch::equal(parameters["positions"].grad().select(1, 0),
                     torch::tensor({2.0F, 2.0F, 2.0F, 0.0F})));
  two.positions = torch::tensor({{3, 3, 3}, {0, 1, 2}});
  const Tensor given = embedding.forward({}, two);
  CHECK(torch::equal(given[0][2].detach(),
                     (parameters["weight"][0] + parameters["positions"][3]).detach()));
}

TEST_CASE("an embedding's norm is applied to its vectors, and gets gradients") {
  ModelSpec spec = small(false);
  spec.norm = {.kind = NormKind::kLayer, .bias = true};
  spec.embedding_norm = true;
  Embedding embedding(spec);
  Parameters parameters = randomise(embedding);
  define_main_grads(parameters);
  const Tensor tokens = torch::tensor({{1, 4, 1}});
  const Tensor y = embedding.forward({}, batch(tokens));
  const Tensor weight = embedding.weight().detach().clone().requires_grad_();
  const Tensor scale = parameters["norm.weight"].detach().clone().requires_grad_();
  const Tensor expected = at::layer_norm(at::embedding(weight, tokens), {3}, scale,
                                         parameters["norm.bias"].detach(), 1e-6);
  CHECK(difference(y.detach(), expected.detach()) < 1e-6);
  const Tensor dy = torch::randn({1, 3, 3});
  y.backward(dy);
  expected.backward(dy);
  CHECK(difference(parameters["weight"].grad(), weight.grad()) < 1e-5);
  CHECK(difference(parameters["norm.weight"].grad(), scale.grad()) < 1e-5);
  CHECK(difference(parameters["norm.bias"].grad(), dy.sum(1)[0]) < 1e-5);
}

TEST_CASE("adapters of tokens and positions add the formula's vectors and get its gradients") {
  for (const bool open : {false, true}) {
    ModelSpec spec = small(true);
    spec.padding_token = 2;
    Embedding embedding(spec);
    embedding.add_adapter(/*r=*/2, /*scale=*/1.5);
    embedding.add_positions_adapter(/*r=*/1, /*scale=*/0.5);
    Parameters parameters = randomise(embedding);
    std::map<std::string, Tensor> expected;  // the same values, whose gradients autograd finds
    for (const auto& [name, parameter] : parameters)
      expected[name] = parameter.detach().clone().requires_grad_();
    for (const char* frozen : {"weight", "positions"}) {
      parameters[frozen].requires_grad_(false);
      parameters.erase(frozen);
    }
    if (open) define_main_grads(parameters);
    const Tensor tokens = torch::tensor({{1, 4, 1}, {2, 0, 4}});
    const auto adapted = [&](const std::string& table, const std::string& prefix, double scale) {
      return expected[table] +
             scale * torch::mm(expected[prefix + "lora_B"], expected[prefix + "lora_A"]).t();
    };
    const Tensor y = embedding.forward({}, batch(tokens));
    const Tensor from = at::embedding(adapted("weight", "", 1.5), tokens, /*padding_idx=*/2) +
                        adapted("positions", "positions.", 0.5).narrow(0, 0, 3);
    CHECK(torch::allclose(y.detach(), from.detach(), 0, 1e-6));
    const Tensor dy = torch::randn({2, 3, 3});
    y.backward(dy);
    from.backward(dy);
    for (const char* name : {"lora_A", "positions.lora_A", "positions.lora_B"}) {
      CAPTURE(name);
      CHECK(torch::allclose(parameters[name].grad(), expected[name].grad(), 1e-5, 1e-6));
    }
    // The factors are trained apart: B gets the padding token's part, too, as in peft.
    const Tensor low = at::embedding(expected["lora_A"].detach().t(), tokens).flatten(0, 1);
    CHECK(torch::allclose(parameters["lora_B"].grad(), 1.5 * dy.flatten(0, 1).t().mm(low), 1e-5,
                          1e-6));
    CHECK(!embedding.weight().grad().defined());
  }
}

TEST_CASE("a sequence longer than the position table is refused with both lengths") {
  Embedding embedding(small(true));
  randomise(embedding);
  CHECK_THROWS_WITH_AS(embedding.forward({}, batch(torch::zeros({1, 5}, torch::kInt64))),
                       "a sequence of 5 tokens is longer than the model's 4 positions", Error);
}

TEST_CASE("ranks of a vocabulary have runs that lie behind each other") {
  for (const int64_t size : {1600, 701, 9}) {
    int64_t next = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const VocabShard part(
          size, std::make_shared<TensorParallel>(rank, 4, TensorParallel::CommOptions{}));
      CHECK(part.begin == next);
      CHECK(part.local_size <= part.max_local_size);
      next += part.local_size;
    }
    CHECK(next == size);
  }
  const VocabShard third(1600,
                         std::make_shared<TensorParallel>(2, 8, TensorParallel::CommOptions{}));
  CHECK(third.begin == 400);
  CHECK(third.local_size == 200);
}

TEST_CASE("a token is a row of the one rank that has it") {
  const VocabShard second(7, std::make_shared<TensorParallel>(1, 2, TensorParallel::CommOptions{}));
  const auto [rows, is_local] = second.local_rows(torch::tensor({0, 3, 4, 6}, torch::kLong));
  CHECK(at::equal(is_local, torch::tensor({false, false, true, true})));
  CHECK(at::equal(rows, torch::tensor({0, 0, 0, 2}, torch::kLong)));
  CHECK_THROWS_WITH_AS(second.local_rows(torch::tensor({0, 7}, torch::kLong)),
                       "token 7 is outside of the vocabulary of 7", Error);
  CHECK_THROWS_WITH_AS(second.local_rows(torch::tensor({0, -1}, torch::kLong)),
                       "token -1 is outside of the vocabulary of 7", Error);
  const Split of_rows = second.splits("weight", at::empty({3, 5}), /*dim=*/0)->at("weight");
  CHECK(of_rows.shape == std::vector<int64_t>{7, 5});
  CHECK(of_rows.begin == std::vector<int64_t>{4, 0});
  CHECK(of_rows.max_numel == 4 * 5);
  const Split of_columns = second.splits("lora_A", at::empty({2, 3}), /*dim=*/1)->at("lora_A");
  CHECK(of_columns.shape == std::vector<int64_t>{2, 7});
  CHECK(of_columns.begin == std::vector<int64_t>{0, 4});
  CHECK(of_columns.max_numel == 4 * 2);
}

}  // namespace zeroth::model::embedding_test
