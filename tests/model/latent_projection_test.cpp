#include "model/blocks/latent_projection.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model::latent_projection_test {

using torch::Tensor;

TEST_CASE("keys and values come of one short vector, and all heads share the part that rotates") {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (const int64_t q_rank : {0, 5}) {
    ModelSpec spec;
    spec.hidden_size = 8;
    spec.num_heads = spec.num_kv_heads = 3;
    spec.latent =
        LatentSpec{.q_rank = q_rank, .kv_rank = 4, .nope_dim = 2, .rope_dim = 4, .v_dim = 3};
    spec.head_dim = 6;
    spec.rope.rotary_dim = 4;
    const LatentProjection projection(spec, nullptr);
    Parameters p = randomise(projection);
    RopeTable table(spec.rope, spec.head_dim, 16);
    const Tensor x = torch::randn({2, 5, 8});
    const RopeTable::Angles angles = table.sequence(5, x);
    const auto [q, k, v, gate] = projection.forward(x, angles, {});
    CHECK_FALSE(gate.defined());
    CHECK(q.sizes().vec() == Sizes{2, 5, 3, 6});
    CHECK(k.sizes().vec() == Sizes{2, 5, 3, 6});
    CHECK(v.sizes().vec() == Sizes{2, 5, 3, 3});

    const auto norm = [](const Tensor& y, const Tensor& weight) {
      return y * (y.square().mean(-1, true) + 1e-6).rsqrt() * weight;
    };
    const Tensor both = at::matmul(x, p["kv_a.weight"].t());
    const Tensor kv =
        at::matmul(norm(both.narrow(-1, 0, 4), p["kv_norm.weight"]), p["kv_b.weight"].t())
            .view({2, 5, 3, 5});
    CHECK(difference(v, kv.narrow(-1, 2, 3)) < 1e-6);
    CHECK(difference(k.narrow(-1, 0, 2), kv.narrow(-1, 0, 2)) < 1e-6);
    const Tensor turned = rotate(both.narrow(-1, 4, 4).view({2, 5, 1, 4}).contiguous(), angles);
    for (int64_t head = 0; head < 3; ++head)
      CHECK(difference(k.narrow(2, head, 1).narrow(-1, 2, 4), turned) < 1e-6);
    const Tensor queries =
        q_rank == 0 ? at::matmul(x, p["q.weight"].t())
                    : at::matmul(norm(at::matmul(x, p["q_a.weight"].t()), p["q_norm.weight"]),
                                 p["q_b.weight"].t());
    CHECK(difference(q.narrow(-1, 0, 2), queries.view({2, 5, 3, 6}).narrow(-1, 0, 2)) < 1e-6);
  }
}

}  // namespace zeroth::model::latent_projection_test
