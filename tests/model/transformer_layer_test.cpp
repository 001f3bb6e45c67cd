#include "model/blocks/transformer_layer.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

struct Layer {
  Layer() {
    spec.hidden_size = 8;
    spec.intermediate_size = 12;
    spec.num_layers = 1;
    spec.num_heads = spec.num_kv_heads = 2;
    spec.head_dim = 4;
    spec.max_positions = 16;
    spec.windowed_layers = {false};
    block = std::make_shared<TransformerLayer>(spec, 0, std::make_shared<SequenceTables>(spec));
    parameters = randomise(*block);
  }

  ModelSpec spec;
  std::shared_ptr<TransformerLayer> block;
  Parameters parameters;
};

}  // namespace

TEST_CASE("halves whose last product is zero leave the residual stream as it is") {
  Layer layer;
  const torch::NoGradGuard no_grad;
  layer.parameters["attention.o.weight"].zero_();
  layer.parameters["mlp.down.weight"].zero_();
  const Tensor x = torch::randn({2, 5, 8});
  CHECK(torch::equal(layer.block->forward(x, {}), x));
}

TEST_CASE("the input stays untouched and a recomputed forward gives bit-equal gradients") {
  Layer layer;
  const Tensor x = torch::randn({2, 5, 8});
  const Tensor copy = x.clone();
  const Tensor dy = torch::randn({2, 5, 8});
  std::vector<Tensor> dx, dw;
  for (int repeat = 0; repeat < 2; ++repeat) {
    open_gradients(layer.parameters);
    const Tensor input = x.detach().requires_grad_();
    layer.block->forward(input, {}).backward(dy);
    dx.push_back(input.grad());
    dw.push_back(layer.parameters["attention.k.weight"].grad());
  }
  CHECK(torch::equal(x, copy));
  CHECK(torch::equal(dx[0], dx[1]));
  CHECK(torch::equal(dw[0], dw[1]));
}

TEST_CASE("two forwards in flight do not disturb each other's gradients") {
  Layer layer;
  const Tensor a = torch::randn({1, 5, 8}).requires_grad_();
  const Tensor b = torch::randn({1, 9, 8}).requires_grad_();
  layer.block->forward(a, {}).sum().backward();
  const Tensor alone = a.grad().clone();
  a.mutable_grad() = Tensor();
  const Tensor ya = layer.block->forward(a, {});
  const Tensor yb = layer.block->forward(b, {});
  yb.sum().backward();
  ya.sum().backward();
  CHECK(torch::equal(a.grad(), alone));
}

}  // namespace zeroth::model
