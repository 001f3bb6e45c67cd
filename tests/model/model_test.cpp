// Every family and variant against transformers.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/model_modules.h"
#include "tests/model/materialize.h"

namespace zeroth::model::model_test {
namespace {

struct Loaded {
  ModelSpec spec;
  Blocks blocks;
  Parameters parameters;
  MicroBatch batch;
  std::map<std::string, torch::Tensor> expected;
};

Loaded load(const std::string& name, torch::ScalarType dtype = torch::kFloat32) {
  Loaded loaded;
  const ModelSpec& spec = loaded.spec = read_model_spec(fixture(name));
  CHECK_MESSAGE(spec.unknown_keys.empty(), name, ": ",
                fmt::format("{}", fmt::join(spec.unknown_keys, ", ")));
  loaded.blocks = build_blocks(spec);
  loaded.parameters = materialize(loaded.blocks, *open_weights(fixture(name), spec, 1), dtype);
  loaded.expected = load_tensors(fixture(name) + "/expected.safetensors");
  loaded.batch.tokens = loaded.expected["ids"];
  loaded.batch.targets = loaded.expected["targets"];
  loaded.batch.loss_normalizer = loaded.batch.targets.ne(kIgnoreIndex).sum().item<double>();
  return loaded;
}

// Returns whether the parameter has no gradient but for rounding: without rotary embeddings a bias
// of k moves all scores of a query alike, and some parameters are not trained.
bool is_noise(const std::string& name, const std::string& parameter) {
  return (name == "opt" && parameter.ends_with(".k.bias")) || !is_trainable(parameter);
}

}  // namespace

TEST_CASE("logits equal those of transformers") {
  for (const std::string name : kFixtures) {
    CAPTURE(name);
    Loaded model = load(name);
    model.batch.targets = torch::Tensor();
    const torch::Tensor logits = run(model.blocks, model.batch);
    CHECK(logits.sizes().vec() == Sizes{2, 24, 64});
    CHECK(difference(logits, model.expected["logits"]) < 1e-5);
  }
}

TEST_CASE("loss and gradients equal those of transformers") {
  for (const std::string name : kFixtures) {
    CAPTURE(name);
    Loaded model = load(name);
    define_main_grads(model.parameters);
    const torch::Tensor loss = train(model.blocks, model.batch);
    CHECK((loss.scalar_type() == torch::kFloat32));
    CHECK(difference(loss, model.expected["loss"]) < 2e-6);
    for (const auto& [expected_name, grad] : model.expected) {
      constexpr std::string_view kPrefix = "grad.";
      std::string parameter;
      int64_t piece = 0;  // of a parameter that files hold as several tensors
      if (expected_name == "grad_first") parameter = "layers.0.attention_norm.weight";
      if (expected_name.starts_with(kPrefix)) {
        const std::string stored = expected_name.substr(kPrefix.size());
        const auto found = stored_piece(family_of(model.spec), stored);
        parameter = found ? found->canonical : canonical_name(model.spec, stored).value_or("");
        // transformers has other names in memory than in files.
        if (parameter.empty()) CHECK(stored.find(".block_sparse_moe.") != stored.npos);
        piece = found ? found->index : 0;
      }
      if (parameter.empty() || is_noise(name, parameter)) continue;
      CAPTURE(expected_name);
      const torch::Tensor own = model.parameters.at(parameter).grad().flatten();
      CHECK(difference(own.narrow(0, piece * grad.numel(), grad.numel()), grad.flatten()) < 2e-5);
    }
    CHECK(difference(model.parameters["embedding.weight"].grad(),
                     model.expected["grad_embedding"]) < 2e-5);
  }
}

TEST_CASE("open gradients receive exactly what autograd would accumulate") {
  for (const std::string name : {"llama_head_dim", "qwen3_tied", "gpt2"}) {
    CAPTURE(name);
    Loaded open = load(name);
    define_main_grads(open.parameters);
    train(open.blocks, open.batch);
    Loaded closed = load(name);
    train(closed.blocks, closed.batch);
    for (const auto& [parameter, tensor] : closed.parameters) {
      CAPTURE(parameter);
      CHECK(difference(open.parameters[parameter].grad(), tensor.grad()) < 1e-6);
    }
  }
}

TEST_CASE("a second micro-batch adds to the open gradients") {
  Loaded model = load("llama");
  define_main_grads(model.parameters);
  train(model.blocks, model.batch);
  const torch::Tensor once = model.parameters["layers.1.mlp.up.weight"].grad().clone();
  train(model.blocks, model.batch);
  CHECK(difference(model.parameters["layers.1.mlp.up.weight"].grad(), 2 * once) < 1e-6);
}

TEST_CASE("given positions 0, 1, 2 ... change nothing and shifted ones turn the angles") {
  for (const std::string name : {"llama_dynamic", "gpt2"}) {
    CAPTURE(name);
    Loaded model = load(name);
    model.batch.targets = torch::Tensor();
    const torch::Tensor plain = run(model.blocks, model.batch);
    model.batch.positions = torch::arange(24).expand({2, 24});
    CHECK(torch::equal(run(model.blocks, model.batch), plain));
    model.batch.positions = (torch::arange(24) / 2).to(torch::kInt64).expand({2, 24});
    CHECK(difference(run(model.blocks, model.batch), plain) > 1e-3);
  }
}

TEST_CASE("bf16 stays as close to fp32 as transformers does") {
  Loaded model = load("llama_bf16", torch::kBFloat16);
  MicroBatch eval = model.batch;
  eval.targets = torch::Tensor();
  const torch::Tensor logits = run(model.blocks, eval);
  CHECK((logits.scalar_type() == torch::kBFloat16));
  const torch::Tensor theirs = model.expected["logits_bf16"];
  CHECK(difference(logits, theirs) < 0.02);
  const auto noise = [&](const torch::Tensor& rounded) {
    return (rounded - model.expected["logits"]).abs().mean().item<double>();
  };
  CHECK(noise(logits) < 1.1 * noise(theirs));
  define_main_grads(model.parameters);  // wider than the parameters
  const torch::Tensor loss = train(model.blocks, model.batch);
  CHECK(difference(loss, model.expected["loss"]) < 0.01);
  CHECK(difference(model.parameters["embedding.weight"].grad(), model.expected["grad_embedding"]) <
        0.05);
}

namespace {

// A model with its dropout on, and seeds for its two rows.
Loaded dropping(const std::string& name = "gpt2", double p = 0.1) {
  ModelSpec spec = read_model_spec(fixture(name));
  override_dropout(spec, p);
  Loaded model = load(name);
  model.blocks = build_blocks(spec);
  model.parameters = materialize(model.blocks, *open_weights(fixture(name), spec, 1));
  model.batch.sample_seeds = {101, 102};
  return model;
}

MicroBatch row(const MicroBatch& batch, int64_t index) {
  MicroBatch one = batch;
  one.tokens = batch.tokens.narrow(0, index, 1);
  one.targets = batch.targets.narrow(0, index, 1);
  one.sample_seeds = {batch.sample_seeds[static_cast<size_t>(index)]};
  return one;
}

}  // namespace

TEST_CASE("dropout changes a training loss, by its seeds; evaluation runs without") {
  Loaded plain = load("gpt2"), model = dropping();
  const double expected = run(plain.blocks, plain.batch).item<double>();
  const double dropped = run(model.blocks, model.batch).item<double>();
  CHECK(std::abs(dropped - expected) > 1e-4);
  CHECK(run(model.blocks, model.batch).item<double>() == dropped);  // as recompute would run it
  MicroBatch other = model.batch;
  other.sample_seeds = {103, 104};
  CHECK(run(model.blocks, other).item<double>() != dropped);
  other.sample_seeds.clear();
  CHECK(run(model.blocks, other).item<double>() == expected);
}

TEST_CASE("dropout does not depend on how a batch is split into micro-batches") {
  Loaded whole = dropping(), split = dropping();
  define_main_grads(whole.parameters);
  define_main_grads(split.parameters);
  const torch::Tensor loss = train(whole.blocks, whole.batch);
  torch::Tensor sum = torch::zeros({});
  for (const int64_t i : {0, 1}) sum += train(split.blocks, row(split.batch, i));
  CHECK(difference(sum, loss) < 1e-6);
  for (const auto& [name, parameter] : whole.parameters) {
    CAPTURE(name);
    CHECK(difference(split.parameters[name].grad(), parameter.grad()) < 1e-5);
  }
}

TEST_CASE("samples that share a row have the losses and gradients of rows of their own") {
  constexpr int64_t kFirst = 14, kSecond = 10;  // tokens
  for (const std::string name : kFixtures) {
    for (const double p : {0.0, 0.1}) {
      CAPTURE(name);
      CAPTURE(p);
      Loaded alone = dropping(name, p), packed = dropping(name, p);
      define_main_grads(alone.parameters);
      define_main_grads(packed.parameters);
      const torch::Tensor tokens = alone.batch.tokens, targets = alone.batch.targets;
      alone.batch.tokens = tokens.narrow(1, 0, kFirst).contiguous();
      alone.batch.targets = targets.narrow(1, 0, kFirst).contiguous();
      alone.batch.targets[1].narrow(0, kSecond, kFirst - kSecond).fill_(kIgnoreIndex);
      const auto join = [&](const torch::Tensor& both) {
        return at::cat({both[0].narrow(0, 0, kFirst), both[1].narrow(0, 0, kSecond)}).unsqueeze(0);
      };
      packed.batch.tokens = join(tokens);
      packed.batch.targets = join(targets);
      const torch::Tensor begins =
          at::cat({torch::zeros({kFirst}, torch::kInt64), torch::full({kSecond}, kFirst)});
      packed.batch.first_keys = begins.unsqueeze(0);
      packed.batch.positions = (torch::arange(kFirst + kSecond) - begins).unsqueeze(0);
      CHECK(difference(train(packed.blocks, packed.batch), train(alone.blocks, alone.batch)) <
            1e-6);
      for (const auto& [parameter, tensor] : alone.parameters) {
        CAPTURE(parameter);
        if (!tensor.grad().defined()) continue;  // codes and scales of NF4
        if (is_noise(name, parameter)) {
          CHECK(tensor.grad().abs().max().item<double>() < 1e-6);
          continue;
        }
        CHECK(difference(packed.parameters[parameter].grad(), tensor.grad()) < 2e-5);
      }
      packed.batch.first_keys = torch::Tensor();  // samples see each other
      packed.batch.sample_seeds.resize(1);
      CHECK(difference(run(packed.blocks, packed.batch), run(alone.blocks, alone.batch)) > 1e-6);
    }
  }
}

TEST_CASE("the same forward twice is bit-equal") {
  Loaded model = load("qwen2_window");
  CHECK(torch::equal(run(model.blocks, model.batch), run(model.blocks, model.batch)));
}

}  // namespace zeroth::model::model_test
