#include "model/blocks/delta_net.h"

#include <doctest/doctest.h>

#include "model/kernels/sequence_kernels.h"
#include "tests/model/chain_variants.h"
#include "tests/model/materialize.h"

namespace zeroth::model::delta_net_test {
namespace {

using torch::Tensor;

constexpr int64_t kKeys = 8, kValues = 12, kGroup = 2;  // channels and value heads of a key head

struct Net {
  explicit Net(const std::string& variant)
      : spec(chain_variant(variant)),
        net(std::make_shared<DeltaNet>(spec, std::make_shared<SequenceTables>(spec), nullptr)),
        parameters(randomise(*net)) {}

  ModelSpec spec;
  std::shared_ptr<DeltaNet> net;
  Parameters parameters;
};

}  // namespace

TEST_CASE("a delta net is its formula") {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  Net own("qwen3_5_text");
  Parameters& p = own.parameters;
  const Tensor x = torch::randn({2, 7, 16});
  const auto product = [&](const char* name) {
    return at::matmul(x, p.at(std::string(name) + ".weight").t());
  };
  const Tensor qkv = causal_conv(product("qkv"), p.at("conv.weight"), {.silu = true});
  const Tensor decay = -p.at("A_log").exp() * (product("a") + p.at("dt_bias")).exp().log1p();
  const Tensor y = gated_delta_rule({.q = qkv.narrow(2, 0, 32).view({2, 7, 4, 8}),
                                     .k = qkv.narrow(2, 32, 32).view({2, 7, 4, 8}),
                                     .v = qkv.narrow(2, 64, 48).view({2, 7, 8, 6}),
                                     .decay = decay,
                                     .beta = product("b").sigmoid()});
  const Tensor scale = (y.square().mean(-1, true) + own.spec.norm.eps).rsqrt();
  const Tensor z = product("z").view({2, 7, 8, 6});
  const Tensor gated = y * scale * p.at("norm.weight") * z * z.sigmoid();
  const Tensor expected = at::matmul(gated.flatten(2), p.at("o.weight").t());
  CHECK(difference(own.net->forward(x, {}), expected) < 1e-5);
}

TEST_CASE("fused products hold the rows of the others, those of each key head together") {
  torch::manual_seed(6);
  const torch::NoGradGuard no_grad;
  Net apart("qwen3_5_text"), fused("qwen3_next");
  const auto weight = [&](const char* name) {
    return apart.parameters.at(std::string(name) + ".weight");
  };
  for (const char* name : {"A_log", "dt_bias", "conv.weight", "norm.weight", "o.weight"})
    fused.parameters.at(name).copy_(apart.parameters.at(name));
  std::vector<Tensor> qkvz, ba;
  for (int64_t head = 0; head < 4; ++head) {
    qkvz.push_back(weight("qkv").narrow(0, head * kKeys, kKeys));
    qkvz.push_back(weight("qkv").narrow(0, (4 + head) * kKeys, kKeys));
    qkvz.push_back(weight("qkv").narrow(0, 8 * kKeys + head * kValues, kValues));
    qkvz.push_back(weight("z").narrow(0, head * kValues, kValues));
    ba.push_back(weight("b").narrow(0, head * kGroup, kGroup));
    ba.push_back(weight("a").narrow(0, head * kGroup, kGroup));
  }
  fused.parameters.at("qkvz.weight").copy_(at::cat(qkvz));
  fused.parameters.at("ba.weight").copy_(at::cat(ba));
  const Tensor x = torch::randn({2, 7, 16});
  CHECK(difference(fused.net->forward(x, {}), apart.net->forward(x, {})) < 1e-6);
}

TEST_CASE("on ranks that share a layer the convolution is three slices of one weight") {
  const ModelSpec spec = chain_variant("qwen3_5_text");
  const auto tp = std::make_shared<TensorParallel>(1, 2, TensorParallel::CommOptions{});
  const DeltaNet net(spec, std::make_shared<SequenceTables>(spec), tp);
  const Splits splits = net.splits("delta_net.");
  CHECK(splits.size() == 5);
  const auto check = [&](const std::string& name, const std::string& full, const Sizes& shape,
                         const Sizes& begin) {
    const Split& split = splits.at("delta_net." + name);
    CHECK(split.full_name == "delta_net." + full);
    CHECK(split.shape == shape);
    CHECK(split.begin == begin);
  };
  check("conv.q", "conv.weight", {112, 1, 3}, {16, 0, 0});
  check("conv.k", "conv.weight", {112, 1, 3}, {48, 0, 0});
  check("conv.v", "conv.weight", {112, 1, 3}, {88, 0, 0});
  check("A_log", "A_log", {8}, {4});
  check("dt_bias", "dt_bias", {8}, {4});
}

}  // namespace zeroth::model::delta_net_test
