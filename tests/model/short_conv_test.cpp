#include "model/blocks/short_conv.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::short_conv_test {
namespace {

using torch::Tensor;

// Returns the convolution by torch's own, of rows of one sample.
Tensor formula(const Tensor& x, const Tensor& weight) {
  const int64_t kernel = weight.size(2);
  const Tensor all = at::conv1d(x.transpose(1, 2), weight, {}, 1, kernel - 1, 1, x.size(2));
  return all.narrow(2, 0, x.size(1)).transpose(1, 2);
}

ModelSpec small(bool bias) {
  ModelSpec spec;
  spec.hidden_size = 6;
  spec.num_layers = 1;
  spec.layers = {{.mixer = LayerMixer::kShortConv}};
  spec.short_conv = {.kernel_size = 3, .bias = bias};
  return spec;
}

}  // namespace

TEST_CASE("a short convolution is between two gates, and delivers its gradients") {
  torch::manual_seed(53);
  for (const bool bias : {false, true}) {
    const ModelSpec spec = small(bias);
    ShortConv mixer(spec, std::make_shared<SequenceTables>(spec), nullptr);
    Parameters p = randomise(mixer);
    define_main_grads(p);
    const Tensor x = torch::randn({2, 5, 6});
    const Tensor y = mixer.forward(x, {});
    std::map<std::string, Tensor> own;
    for (const auto& [name, tensor] : p) own[name] = tensor.detach().clone().requires_grad_();
    const auto product = [&](const Tensor& input, const std::string& name) {
      return at::linear(input, own.at(name + ".weight"),
                        bias ? std::optional(own.at(name + ".bias")) : std::nullopt);
    };
    const std::vector<Tensor> parts = product(x, "in").chunk(3, -1);
    Tensor mixed = formula(parts[0] * parts[2], own.at("depthwise.weight"));
    if (bias) mixed = mixed + own.at("depthwise.bias");
    const Tensor expected = product(parts[1] * mixed, "out");
    CHECK(difference(y.detach(), expected.detach()) < 1e-6);
    const Tensor dy = torch::randn(y.sizes());
    y.backward(dy);
    expected.backward(dy);
    for (const auto& [name, tensor] : p) {
      CAPTURE(name);
      CHECK(difference(tensor.grad(), own.at(name).grad()) < 2e-6);
    }
  }
}

}  // namespace zeroth::model::short_conv_test
