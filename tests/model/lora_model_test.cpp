#include "model/hf/lora_model.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/model/materialize.h"

namespace zeroth::model::lora_model_test {
namespace {

using torch::Tensor;
using Init = configs::LoraConfig::Init;

// A source whose values are all one number.
class ConstantSource final : public WeightSource {
 public:
  explicit ConstantSource(double value) : value_(value) {}
  void read(const ParamSlice&, Tensor out) override { out.fill_(value_); }

 private:
  double value_;
};

configs::LoraConfig config_of(std::vector<std::string> targets) {
  configs::LoraConfig config;
  config.enabled = true;
  config.r = 2;
  config.target_modules.names = std::move(targets);
  return config;
}

ModelSpec spec_of(const std::string& name) {
  return read_model_spec(fixture(name));
}

MicroBatch batch_of(const ModelSpec& spec) {
  MicroBatch batch;
  batch.tokens = torch::arange(2 * 8).remainder(spec.vocab_size).view({2, 8});
  batch.targets = batch.tokens.flip(1);
  return batch;
}

Tensor read(WeightSource& source, const std::string& name, const std::vector<int64_t>& shape) {
  const TensorSlice whole = TensorSlice::full(shape);
  const Tensor values = torch::empty({whole.elements()});
  source.check(name, shape);
  source.read({name, whole}, values);
  return values.view(shape);
}

}  // namespace

TEST_CASE("a new adapter changes no loss, and only its factors get gradients") {
  for (const char* name : {"llama", "qwen3_tied", "gpt2"}) {
    CAPTURE(name);
    const ModelSpec spec = spec_of(name);
    const bool gpt2 = spec.family == "gpt2";
    const auto config = gpt2 ? config_of({"c_attn", "c_fc"}) : config_of({"q_proj", "down_proj"});
    const LoraPlan plan = plan_lora(spec, config);
    const MicroBatch batch = batch_of(spec);
    const Blocks alone = build_blocks(spec);
    materialize(alone, *open_weights(fixture(name), spec, 1));
    const Tensor expected = run(alone, batch);

    const Blocks blocks = build_blocks(lora_spec(spec, plan));
    add_adapters(blocks, plan);
    const auto source = make_lora_source(plan, open_weights(fixture(name), spec, 1), nullptr, 1);
    const Parameters parameters = materialize(blocks, *source);
    CHECK(torch::equal(run(blocks, batch), expected));
    train(blocks, batch);
    size_t factors = 0;
    for (const auto& [path, parameter] : parameters) {
      CAPTURE(path);
      const bool is_factor = path.ends_with(".lora_A") || path.ends_with(".lora_B");
      CHECK(parameter.requires_grad() == is_factor);
      CHECK(parameter.grad().defined() == is_factor);
      factors += is_factor ? 1 : 0;
    }
    CHECK(factors == 2 * plan.modules.size());
    CHECK(plan.modules.size() == static_cast<size_t>(2 * spec.num_layers));
  }
}

TEST_CASE("factors start as peft's: A within 1 / sqrt(inputs) or of deviation 1 / r, B at zero") {
  const LoraPlan plan = plan_lora(spec_of("llama"), config_of({"q_proj"}));
  const auto source = [&](Init init, uint64_t seed = 3) {
    LoraPlan with = plan;
    with.init = init;
    return make_lora_source(with, std::make_unique<ConstantSource>(7), nullptr, seed);
  };
  const std::string a = "layers.0.attention.q.lora_A", b = "layers.0.attention.q.lora_B";
  const Tensor uniform = read(*source(Init::kKaiming), a, {8, 4096});
  CHECK(uniform.abs().max().item<double>() <= 1.0 / 64);
  CHECK(uniform.std().item<double>() == doctest::Approx(1 / 64.0 / std::sqrt(3.0)).epsilon(0.02));
  CHECK(std::abs(uniform.mean().item<double>()) < 3e-4);
  CHECK(!torch::equal(uniform, read(*source(Init::kKaiming, 4), a, {8, 4096})));
  const Tensor normal = read(*source(Init::kGaussian), a, {8, 4096});
  CHECK(normal.std().item<double>() == doctest::Approx(1 / 8.0).epsilon(0.02));
  for (const Init init : {Init::kKaiming, Init::kGaussian})
    CHECK(read(*source(init), b, {16, 8}).abs().max().item<double>() == 0);
  CHECK(read(*source(Init::kRandom), b, {16, 8}).abs().min().item<double>() > 0);
  // Of tables, as of nn.Embedding: A at zero, B of deviation 1.
  CHECK(read(*source(Init::kKaiming), "embedding.lora_A", {8, 16}).abs().max().item<double>() == 0);
  CHECK(read(*source(Init::kGaussian), "embedding.lora_B", {4096, 8}).std().item<double>() ==
        doctest::Approx(1).epsilon(0.02));
  CHECK(read(*source(Init::kRandom), "embedding.positions.lora_A", {8, 16})
            .abs()
            .min()
            .item<double>() > 0);
  CHECK(read(*source(Init::kKaiming), "layers.0.attention.q.weight", {2, 2})
            .eq(7)
            .all()
            .item<bool>());
}

TEST_CASE("a slice of a factor has the values that it has in the whole") {
  const LoraPlan plan = plan_lora(spec_of("llama"), config_of({"q_proj"}));
  const auto source = make_lora_source(plan, std::make_unique<ConstantSource>(7), nullptr, 3);
  const std::string a = "layers.0.attention.q.lora_A";
  const Tensor whole = read(*source, a, {4, 10});
  const Tensor part = torch::empty({6});
  source->read({a, TensorSlice::full({4, 10}), 17}, part);
  CHECK(torch::equal(part, whole.flatten().narrow(0, 17, 6)));
}

TEST_CASE("an adapter's files give what is trained, the base all else") {
  configs::LoraConfig config = config_of({"q_proj"});
  config.modules_to_save = {"lm_head"};
  const LoraPlan plan = plan_lora(spec_of("llama"), config);
  const auto with = make_lora_source(plan, std::make_unique<ConstantSource>(7),
                                     std::make_unique<ConstantSource>(5), 3);
  const auto first = [&](WeightSource& source, const char* name) {
    return read(source, name, {1, 1}).item<double>();
  };
  CHECK(first(*with, "layers.0.attention.q.lora_B") == 5);
  CHECK(first(*with, "head.weight") == 5);
  CHECK(first(*with, "layers.0.attention.q.weight") == 7);
}

TEST_CASE("a tied head that is trained starts as the embedding, with a weight of its own") {
  const ModelSpec spec = spec_of("qwen3_tied");
  configs::LoraConfig config = config_of({"q_proj"});
  config.modules_to_save = {"lm_head"};
  const LoraPlan plan = plan_lora(spec, config);
  CHECK(plan.unties_head);
  const Blocks blocks = build_blocks(lora_spec(spec, plan));
  add_adapters(blocks, plan);
  const auto source =
      make_lora_source(plan, open_weights(fixture("qwen3_tied"), spec, 1), nullptr, 1);
  const Parameters parameters = materialize(blocks, *source);
  const Tensor head = parameters.at("head.weight"), embedding = parameters.at("embedding.weight");
  CHECK(torch::equal(head.detach(), embedding.detach()));
  CHECK(head.data_ptr() != embedding.data_ptr());
  CHECK(head.requires_grad());
  CHECK(!embedding.requires_grad());
}

}  // namespace zeroth::model::lora_model_test
