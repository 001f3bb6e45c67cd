#include "model/blocks/transformer_layer.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/model/materialize.h"

namespace zeroth::model::transformer_layer_test {
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
    define_main_grads(layer.parameters);
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

TEST_CASE("norms are where the spec says, and the parallel form reads one input") {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({2, 5, 8});
  const auto names_of = [](const ModelSpec& spec) {
    std::set<std::string> names;
    const TransformerLayer block(spec, 0, std::make_shared<SequenceTables>(spec));
    for (const auto& item : block.named_parameters())
      if (item.key().find("norm") != std::string::npos) names.insert(item.key());
    return names;
  };
  ModelSpec spec = Layer().spec;
  using Names = std::set<std::string>;
  CHECK(names_of(spec) == Names{"attention_norm.weight", "mlp_norm.weight"});
  spec.norm_placement = NormPlacement::kPost;
  CHECK(names_of(spec) == Names{"attention_post_norm.weight", "mlp_post_norm.weight"});
  spec.norm_placement = NormPlacement::kSandwich;
  CHECK(names_of(spec).size() == 4);
  spec.norm_placement = NormPlacement::kPre;
  spec.parallel_residual = ParallelResidual::kTwoNorms;
  CHECK(names_of(spec) == Names{"attention_norm.weight", "mlp_norm.weight"});
  spec.parallel_residual = ParallelResidual::kOneNorm;
  CHECK(names_of(spec) == Names{"attention_norm.weight"});

  // With no attention, the parallel form is x + mlp(norm(x)).
  TransformerLayer block(spec, 0, std::make_shared<SequenceTables>(spec));
  Parameters parameters = randomise(block);
  parameters["attention.o.weight"].zero_();
  const Tensor scale = (x.square().mean(-1, true) + spec.norm.eps).rsqrt();
  const Tensor norm = x * scale * parameters["attention_norm.weight"];
  const Tensor gate = at::matmul(norm, parameters["mlp.gate.weight"].t());
  const Tensor up = at::matmul(norm, parameters["mlp.up.weight"].t());
  const Tensor expected =
      x + at::matmul(gate * gate.sigmoid() * up, parameters["mlp.down.weight"].t());
  CHECK(difference(block.forward(x, {}), expected) < 1e-6);
}

}  // namespace zeroth::model::transformer_layer_test
