// One model on several ranks that share every layer, against the same on one.
#include <doctest/doctest.h>

#include <atomic>
#include <mutex>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "model/weight_source.h"
#include "tests/model/chain_variants.h"
#include "tests/model/materialize.h"
#include "tests/support/ranks.h"

namespace zeroth::model::tensor_parallel_chain_test {
namespace {

using comm::MeshDim;
using torch::Tensor;

const char* const kVariants[] = {
    "llama",        "qwen2",     "qwen3",      "gpt2",        "window",      "padding",
    "padding_tied", "seed_oss",  "starcoder2", "interleaved", "multipliers", "nope",
    "phi3",         "gpt_neox",  "gptj",       "gemma2",      "olmo2",       "cohere",
    "scores",       "qwen2_moe", "gpt_oss",    "llama4_text", "deepseek_v3", "qwen3_next",
    "qwen3_5_text", "bloom",     "apertus",    "lfm2",        "gemma4_text"};

// 21 tokens: no two or four ranks have as many of them.
MicroBatch batch_of(const ModelSpec& spec) {
  torch::manual_seed(3);
  MicroBatch batch;
  batch.tokens = torch::randint(spec.vocab_size, {3, 7}, torch::kLong);
  batch.targets = torch::randint(spec.vocab_size, {3, 7}, torch::kLong);
  if (spec.padding_token >= 0) batch.tokens.select(1, 2).fill_(spec.padding_token);
  batch.targets[1][2] = kIgnoreIndex;
  batch.targets[2][6] = kIgnoreIndex;
  batch.loss_normalizer = 19;
  batch.sample_seeds = {11, 22, 33};
  return batch;
}

// No bias is zero, and no norm's weight nor another factor one: a missing gradient would not show.
struct Values final : WeightSource {
  void check(const std::string&, const std::vector<int64_t>&) override {}
  void read(const ParamSlice& part, Tensor out) override {
    torch::manual_seed(static_cast<uint64_t>(std::hash<std::string>()(part.name)));
    const bool is_factor = part.name.ends_with("norm.weight") || part.name.ends_with("scale") ||
                           part.name.ends_with("layer_scalar");
    out.copy_(torch::randn(out.sizes()).mul_(0.3).add_(is_factor ? 1 : 0));
  }
};

struct SingleRankRun {
  Tensor loss, logits;
  Parameters values, gradients;
};

// Builds blocks whose embedding, head and output products of attention have adapters beside trained
// weights, if `adapters` says so.
Blocks blocks_of(const ModelSpec& spec, bool adapters, const TensorParallelPtr& tp = nullptr) {
  Blocks blocks = build_blocks(spec, tp);
  if (!adapters) return blocks;
  blocks.front()->as<Embedding>()->add_adapter(/*r=*/3, /*scale=*/0.5);
  if (spec.learned_positions) blocks.front()->as<Embedding>()->add_positions_adapter(2, 0.5);
  blocks.back()->as<Head>()->add_adapter(2, 1.5, make_dropout_site(0.1, "head.lora"));
  for (const auto& block : blocks) {
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      if (item.key() == "attention.o") item.value()->as<Linear>()->add_adapter(2, 0.5, {});
    }
  }
  return blocks;
}

SingleRankRun on_one_rank(const ModelSpec& spec, const MicroBatch& batch, bool adapters) {
  Values values;
  const Blocks blocks = blocks_of(spec, adapters);
  SingleRankRun whole;
  for (const auto& [name, parameter] : materialize(blocks, values)) {
    whole.values[name] = parameter.detach().clone();
    whole.gradients[name] = parameter;
  }
  whole.loss = train(blocks, batch);
  for (auto& [name, tensor] : whole.gradients)
    tensor = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);  // not trained
  MicroBatch asked = batch;
  asked.targets = torch::Tensor();
  whole.logits = run(blocks, asked);
  return whole;
}

struct RankParameter {
  std::string name;  // of the whole parameter
  Split split;
  Tensor parameter;

  Tensor of(const Tensor& whole) const {
    Tensor box = whole;
    for (int64_t dim = 0; dim < whole.dim(); ++dim) {
      box = box.narrow(dim, split.begin[static_cast<size_t>(dim)], parameter.size(dim));
    }
    return box;
  }
};

// A rank's parameters, with the values that the whole ones have there.
std::vector<RankParameter> fill(const Blocks& blocks, const Parameters& values, int ranks) {
  std::vector<RankParameter> parts;
  for (const auto& block : blocks) {
    const auto splits = block->splits();
    REQUIRE(splits);
    for (const auto& item : block->named_parameters()) {
      if (!item.value().is_meta()) continue;  // tied and done
      RankParameter part{block->label() + "." + item.key(), {}, item.value()};
      const auto split = splits->find(item.key());
      if (split == splits->end()) {
        const std::vector<int64_t> shape = item.value().sizes().vec();
        part.split = {item.key(), shape, std::vector<int64_t>(shape.size(), 0), ranks};
      } else {
        part.split = split->second;
        part.name = block->label() + "." + part.split.full_name;
      }
      const Tensor& whole = values.at(part.name);
      CHECK(whole.sizes().vec() == part.split.shape);
      give_memory(item.value(), part.of(whole).clone().contiguous());
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

TensorParallelPtr make_tensor_parallel(const comm::DeviceMesh& mesh, bool overlap = false) {
  return std::make_shared<TensorParallel>(
      mesh.coordinate(MeshDim::kTp), mesh.layout().shape()[MeshDim::kTp],
      TensorParallel::CommOptions{.group = &mesh.group({MeshDim::kTp}), .overlap = overlap});
}

void on_ranks(int count, const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& fn) {
  testing::run_ranks(count, fn, {.grid = comm::MeshShape().with(MeshDim::kTp, count)});
}

// Loss, logits and every gradient are those of one rank.
void expect_equal(const ModelSpec& spec, int count, bool overlap, bool adapters = false) {
  const MicroBatch batch = batch_of(spec);
  const SingleRankRun whole = on_one_rank(spec, batch, adapters);
  std::mutex lock;
  // Rounding is measured by the largest gradient of a block: where addends cancel, as in that of a
  // norm's weight, the sum is as exact as the addends.
  std::map<std::string, double> scales;  // by block
  const auto block_of = [](const std::string& name) {
    return name.substr(0, name.find('.', name.starts_with("layers.") ? 7 : 0));
  };
  for (const auto& [name, gradient] : whole.gradients) {
    double& scale = scales[block_of(name)];
    scale = std::max(scale, gradient.abs().max().item<double>());
  }
  double worst = 0, loss = 0, logits = 0;
  std::string where;
  on_ranks(count, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const Blocks blocks = blocks_of(spec, adapters, make_tensor_parallel(*mesh, overlap));
    const std::vector<RankParameter> parts = fill(blocks, whole.values, count);
    const Tensor own = train(blocks, batch);
    MicroBatch asked = batch;
    asked.targets = torch::Tensor();
    const Tensor own_logits = run(blocks, asked);
    std::vector<Tensor> sums;
    for (const RankParameter& part : parts) {
      const Tensor grad = part.parameter.grad();
      sums.push_back(grad.defined() ? grad.contiguous() : at::zeros_like(part.parameter));
      mesh->shard_group(part.split.num_replicas).all_reduce(sums.back()).wait();
    }
    const std::lock_guard guard(lock);
    loss = std::max(loss, difference(own, whole.loss));
    logits = std::max(logits, difference(own_logits, whole.logits));
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor expected = whole.gradients.at(parts[i].name);
      const double gap = (sums[i] - parts[i].of(expected)).abs().max().item<double>() /
                         scales.at(block_of(parts[i].name));
      if (gap > worst) where = parts[i].name;
      worst = std::max(worst, gap);
    }
  });
  CHECK(loss < 1e-6);
  CHECK(logits < 1e-5);
  CAPTURE(where);
  CHECK(worst < 1e-5);
}

}  // namespace

TEST_CASE("loss, logits and every gradient on ranks that share layers are those of one rank") {
  for (const std::string name : kVariants) {
    for (const int count : {2, 4}) {
      for (const bool overlap : {false, true}) {
        CAPTURE(name);
        CAPTURE(count);
        CAPTURE(overlap);
        expect_equal(chain_variant(name), count, overlap);
      }
    }
  }
}

TEST_CASE("adapters of embedding, head and attention on ranks that share them are those of one") {
  for (const std::string name : {"llama", "qwen3", "gpt2", "padding", "gptj"}) {
    for (const int count : {2, 4}) {
      CAPTURE(name);
      CAPTURE(count);
      expect_equal(chain_variant(name), count, /*overlap=*/false, /*adapters=*/true);
    }
  }
}

TEST_CASE("vocabularies that no number of ranks divides are not padded: 701 on 2, 3 and 4 ranks") {
  ModelSpec spec = chain_variant("llama");
  spec.vocab_size = 701;
  spec.num_heads = 12;
  spec.num_kv_heads = 12;
  for (const int count : {2, 3, 4}) {
    CAPTURE(count);
    expect_equal(spec, count, false);
  }
}

TEST_CASE("what is dropped does not depend on how many ranks share a layer") {
  for (const std::string name : {"llama", "gpt2", "gptj"}) {
    ModelSpec spec = chain_variant(name);
    override_dropout(spec, 0.25);
    for (const int count : {2, 4}) {
      CAPTURE(name);
      CAPTURE(count);
      expect_equal(spec, count, false);
    }
  }
}

// Returns the bytes that one step of so many ranks exchanges, but for those of embedding and head,
// over the bytes of all tokens in one layer.
int64_t exchanges_of_layer(const ModelSpec& spec, int count) {
  MicroBatch batch = batch_of(spec);
  const SingleRankRun whole = on_one_rank(spec, batch, /*adapters=*/false);
  std::atomic<int64_t> exchanged = 0;
  on_ranks(count, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const Blocks blocks = build_blocks(spec, make_tensor_parallel(*mesh));
    fill(blocks, whole.values, count);
    const int64_t before = mesh->times().bytes;
    train(blocks, batch);
    exchanged = mesh->times().bytes - before;
  });
  const int64_t rows = (21 + count - 1) / count * count;
  const int64_t all = rows * spec.hidden_size * int64_t{sizeof(float)};
  // Embedding and head have two each, and three numbers of each of the 19 trained tokens.
  const int64_t of_layers = exchanged - 4 * all - 3 * 19 * int64_t{sizeof(float)};
  CHECK(of_layers % (all * spec.num_layers) == 0);
  return of_layers / (all * spec.num_layers);
}

TEST_CASE("ranks of a shared layer exchange what Megatron-LM's do that keep their run alone") {
  for (const int count : {2, 4}) {
    // Of each layer four in forward and six in backward.
    CHECK(exchanges_of_layer(chain_variant("llama"), count) == 10);
    // Halves that are parallel are summed before they are reduced, unless dropout comes between.
    for (const char* const name : {"gptj", "gpt_neox"}) {
      ModelSpec spec = chain_variant(name);
      CHECK(exchanges_of_layer(spec, count) == 8);
      override_dropout(spec, 0.25);
      CHECK(exchanges_of_layer(spec, count) == 10);
    }
  }
}

TEST_CASE("the loss of a shared vocabulary has the values that Megatron-LM's test expects") {
  // Each of four ranks has 0 .. 7 four times as logits, of a vocabulary of 128.
  on_ranks(4, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const VocabShard vocabulary(128, make_tensor_parallel(*mesh));
    const Tensor weight = torch::arange(8, torch::kFloat32).repeat({4}).unsqueeze(1);
    const Tensor x = torch::ones({1, 1});
    const double expected[] = {10.2309, 8.2309, 6.2309, 4.2309};
    for (int64_t target = 0; target < 32; target += 2) {
      const Tensor loss = head_loss({{x, weight}}, torch::full({1}, target, torch::kLong),
                                    {.vocab_shard = vocabulary});
      CHECK(loss.item<double>() == doctest::Approx(expected[target / 2 % 4]).epsilon(1e-5));
    }
  });
}

TEST_CASE("what cannot be split is told in one message") {
  ModelSpec spec = chain_variant("llama");
  CHECK_NOTHROW(require_divisible(spec, 2));
  CHECK_NOTHROW(require_divisible(spec, 4));
  CHECK_THROWS_WITH_AS(
      require_divisible(spec, 5),
      "tensor_parallel.autotp_size (--tensor-parallel) 5: this llama model cannot be split over 5 "
      "ranks: 4 attention heads are not a multiple of it; 2 key/value heads are neither a multiple "
      "nor a divisor of it; 24 as intermediate size is not a multiple of it",
      Error);
  ModelSpec hybrid = chain_variant("qwen3_next");
  hybrid.delta_net->key_heads = 3;
  CHECK_THROWS_WITH_AS(
      require_divisible(hybrid, 2),
      "tensor_parallel.autotp_size (--tensor-parallel) 2: this qwen3_next model cannot be split "
      "over 2 ranks: 3 key heads of the gated delta net are not a multiple of it",
      Error);
  spec.vocab_size = 3;
  CHECK_THROWS_WITH_AS(
      require_divisible(spec, 4),
      "tensor_parallel.autotp_size (--tensor-parallel) 4: this llama model cannot be split over 4 "
      "ranks: 3 tokens of the vocabulary leave a rank without any",
      Error);
}

}  // namespace zeroth::model::tensor_parallel_chain_test
