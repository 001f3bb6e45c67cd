#include <ATen/ops/conv1d.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/kernels/sequence_kernels.h"
#include "tests/model/materialize.h"

namespace zeroth::model::causal_conv_test {

using torch::Tensor;

TEST_CASE("the convolution has the sums and gradients of torch's") {
  torch::manual_seed(3);
  for (const int64_t kernel : {1, 4}) {
    for (const int64_t seq : {2, 9}) {
      CAPTURE(kernel);
      CAPTURE(seq);
      const Tensor x = torch::randn({2, seq, 6}).requires_grad_();
      const Tensor weight = torch::randn({6, 1, kernel}).requires_grad_();
      const Tensor dy = torch::randn({2, seq, 6});
      const Tensor sums = at::conv1d(x.transpose(1, 2), weight, {}, 1, kernel - 1, 1, 6)
                              .narrow(2, 0, seq)
                              .transpose(1, 2);
      for (const bool silu : {false, true}) {
        const Tensor expected = silu ? at::silu(sums) : sums;
        const Tensor y = causal_conv(x, weight, {.silu = silu});
        CHECK(difference(y, expected) < 1e-6);
        const auto actual = torch::autograd::grad({y}, {x, weight}, {dy});
        const auto gradients = torch::autograd::grad({expected}, {x, weight}, {dy}, true);
        CHECK(difference(actual[0], gradients[0]) < 1e-6);
        CHECK(difference(actual[1], gradients[1]) < 1e-6);
      }
    }
  }
}

TEST_CASE("the convolution of a sample reads no other one") {
  torch::manual_seed(4);
  const Tensor x = torch::randn({1, 9, 6}), dy = torch::randn({1, 9, 6});
  const Tensor weight = torch::randn({6, 1, 4}).requires_grad_();
  const auto run = [&](const Tensor& part, const Tensor& dpart, const Tensor& first_keys) {
    const Tensor in = part.detach().requires_grad_();
    const Tensor y = causal_conv(in, weight, {.first_keys = first_keys, .silu = true});
    auto gradients = torch::autograd::grad({y}, {in, weight}, {dpart});
    return std::vector<Tensor>{y.detach(), gradients[0], gradients[1]};
  };
  const std::vector<int64_t> lengths = {2, 1, 6};
  const auto packed = run(x, dy, torch::tensor({{0, 0, 2, 3, 3, 3, 3, 3, 3}}));
  Tensor dweight = torch::zeros({6, 1, 4});
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const auto alone = run(x.narrow(1, begin, length), dy.narrow(1, begin, length), {});
    CHECK(difference(packed[0].narrow(1, begin, length), alone[0]) < 1e-6);
    CHECK(difference(packed[1].narrow(1, begin, length), alone[1]) < 1e-6);
    dweight += alone[2];
    begin += length;
  }
  CHECK(difference(packed[2], dweight) < 1e-6);
}

}  // namespace zeroth::model::causal_conv_test
