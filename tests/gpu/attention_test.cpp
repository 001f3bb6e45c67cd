// Attention of packed samples on the GPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "model/blocks/attention.h"
#include "model/kernels/attention_kernels.h"

namespace zeroth::model::attention_test {

TEST_CASE("flash attention over packed samples has the values and gradients of the formula") {
  torch::manual_seed(4);
  constexpr int64_t kSeq = 300;
  torch::Tensor first_keys = torch::zeros({2, kSeq}, torch::kLong);
  first_keys[0].narrow(0, 1, kSeq - 1).fill_(1);
  first_keys[0].narrow(0, 130, kSeq - 130).fill_(130);
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t window : {0, 17}) {
        std::vector<torch::Tensor> x, exact;
        for (const int64_t heads : {6, 2, 2}) {
          const auto options = torch::dtype(dtype).device(torch::kCUDA);
          x.push_back(torch::randn({2, kSeq, heads, head_dim}, options).requires_grad_());
          exact.push_back(x.back().detach().to(torch::kFloat).requires_grad_());
        }
        const torch::Tensor y =
            varlen_attention(x[0], x[1], x[2], cu_seqlens(first_keys, x[0].device()), 0.1, window);
        WindowMask mask(window);
        const torch::Tensor expected = formula_attention(
            exact[0], exact[1], exact[2], mask.get(kSeq, exact[0], first_keys), {.scale = 0.1});
        // Probabilities and what is added are rounded to 16 bits.
        CHECK(torch::allclose(y.to(torch::kFloat), expected, 2e-2, 2e-2));
        const torch::Tensor grad = torch::randn_like(y);
        y.backward(grad);
        expected.backward(grad.to(torch::kFloat));
        for (size_t i = 0; i < 3; ++i) {
          CHECK(torch::allclose(x[i].grad().to(torch::kFloat), exact[i].grad(), 5e-2, 5e-2));
        }
      }
    }
  }
}

TEST_CASE("a packed row's samples have the outputs that they have in rows of their own") {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  ModelSpec spec;
  spec.hidden_size = 256;
  spec.num_layers = 1;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 64;
  spec.max_positions = 256;
  for (const int64_t window : {0, 17}) {
    spec.layers = {{.window = window}};
    Attention attention(spec, 0, std::make_shared<SequenceTables>(spec));
    const auto options = torch::dtype(torch::kBFloat16).device(torch::kCUDA);
    for (auto& parameter : attention.parameters())
      parameter.set_data(torch::randn(parameter.sizes(), options).mul_(0.06));
    const torch::Tensor x = torch::randn({1, 200, 256}, options);
    MicroBatch batch;
    batch.first_keys = torch::zeros({1, 200}, torch::kLong);
    batch.first_keys.narrow(1, 70, 130).fill_(70);
    batch.positions = torch::arange(200) - batch.first_keys;
    const torch::Tensor y = attention.forward(x, batch);
    for (const auto& [begin, size] : {std::pair<int64_t, int64_t>{0, 70}, {70, 130}}) {
      const torch::Tensor alone = attention.forward(x.narrow(1, begin, size), MicroBatch{});
      CHECK(torch::allclose(y.narrow(1, begin, size).to(torch::kFloat), alone.to(torch::kFloat),
                            2e-2, 2e-2));
    }
  }
}

}  // namespace zeroth::model::attention_test
