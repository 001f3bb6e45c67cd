#include "engine/step/tape.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

namespace zeroth::engine::tape_test {
namespace {

struct Cube final : model::Block {
  Cube() : Block("cube") { weight = register_parameter("weight", torch::full({1}, 2.0)); }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    return x.pow(3) * weight;
  }
  torch::Tensor weight;
};

}  // namespace

TEST_CASE("backward gives the input's gradient and adds the parameters'") {
  Cube block;
  Tape tape(1);
  const torch::Tensor y = tape.forward(block, 0, torch::full({1}, 3.0), {});
  CHECK_FALSE(y.requires_grad());
  CHECK(y.item<double>() == 54);
  CHECK(tape.backward(0, torch::full({1}, 10.0)).item<double>() == 540);  // 10 * 2 * 3 * 3^2
  CHECK(block.weight.grad().item<double>() == 270);
}

TEST_CASE(
    "forward without graph keeps nothing, and a second forward from the kept input is bit-equal") {
  Cube block;
  Tape kept(1), recomputed(1);
  const torch::Tensor x = torch::full({1}, 1.1);
  const torch::Tensor dy = torch::full({1}, 0.7);
  kept.forward(block, 0, x, {});
  const torch::Tensor dx = kept.backward(0, dy);

  recomputed.keep_input(0, x);
  CHECK_FALSE(recomputed.forward_without_graph(block, x, {}).requires_grad());
  recomputed.forward(block, 0, recomputed.input(0), {});
  CHECK(at::equal(recomputed.backward(0, dy), dx));
}

TEST_CASE("backward frees the record") {
  Cube block;
  Tape tape(1);
  tape.forward(block, 0, torch::full({1}, 1.0), {});
  tape.backward(0, torch::full({1}, 1.0));
  CHECK_FALSE(tape.input(0).defined());
}

TEST_CASE("behind an undefined gradient there is none") {
  Cube block;
  Tape tape(1);
  tape.forward(block, 0, torch::full({1}, 1.0), {});
  CHECK_FALSE(tape.backward(0, torch::Tensor()).defined());
  CHECK_FALSE(block.weight.grad().defined());
}

}  // namespace zeroth::engine::tape_test
