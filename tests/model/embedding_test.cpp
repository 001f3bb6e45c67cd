#include "model/blocks/embedding.h"

#include <doctest/doctest.h>

#include <limits>

#include "base/error.h"
#include "tests/model/materialize.h"

namespace zeroth::model {
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

TEST_CASE("a sequence longer than the position table is refused with both lengths") {
  Embedding embedding(small(true));
  randomise(embedding);
  CHECK_THROWS_WITH_AS(embedding.forward({}, batch(torch::zeros({1, 5}, torch::kInt64))),
                       "a sequence of 5 tokens is longer than the model's 4 positions", Error);
}

}  // namespace zeroth::model
