#include "tests/support/chain.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>

namespace zeroth::testing {
namespace {

// Values in (-0.5, 0.5) from a counter, the same on every rank.
torch::Tensor values(std::vector<int64_t> shape, int64_t salt) {
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  const torch::Tensor counter =
      torch::arange(numel, torch::kDouble) + static_cast<double>(salt) * 1009.0;
  return ((counter * 0.6180339887).frac() - 0.5).to(torch::kFloat).reshape(shape);
}

class Embedding final : public model::Block {
 public:
  explicit Embedding(const ChainOptions& options)
      : Block("embedding"),
        weight_(register_parameter("weight", values({options.vocab, options.hidden}, 1))) {}
  torch::Tensor forward(const torch::Tensor&, const model::MicroBatch& batch) override {
    return at::embedding(weight_, batch.tokens);
  }
  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
};

class Layer final : public model::Block {
 public:
  Layer(const ChainOptions& options, int64_t index)
      : Block("layers." + std::to_string(index)),
        weight_(register_parameter("weight", values({options.hidden, options.hidden}, 10 + index),
                                   !(options.frozen && index == 1))),
        bias_(register_parameter("bias", values({options.hidden}, 50 + index))) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    return at::tanh(at::matmul(x, weight_) + bias_) + x;
  }

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
};

class Head final : public model::Block {
 public:
  Head(const ChainOptions& options, const torch::Tensor& tied)
      : Block("head"),
        weight_(register_parameter(
            "weight", tied.defined() ? tied : values({options.vocab, options.hidden}, 99))) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    const torch::Tensor logits = at::matmul(x, weight_.t());
    if (!batch.targets.defined()) return logits;
    const torch::Tensor sum =
        at::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), batch.targets.flatten(), {},
                               at::Reduction::Sum, model::kIgnoreIndex);
    return sum / batch.loss_normalizer;
  }

 private:
  torch::Tensor weight_;
};

}  // namespace

model::Blocks make_chain(const ChainOptions& options) {
  auto embedding = std::make_shared<Embedding>(options);
  model::Blocks blocks = {embedding};
  for (int64_t i = 0; i < options.layers; ++i)
    blocks.push_back(std::make_shared<Layer>(options, i));
  blocks.push_back(
      std::make_shared<Head>(options, options.tied ? embedding->weight() : torch::Tensor()));
  return blocks;
}

std::unique_ptr<engine::Engine> make_engine(model::Blocks blocks, const configs::Config& config,
                                            std::shared_ptr<comm::DeviceMesh> mesh) {
  return engine::initialize(std::move(blocks), config, std::move(mesh));
}

torch::Tensor shard_of(engine::Engine& engine, size_t unit) {
  return engine.impl().params().acquire_shard(unit).tensor().clone();
}

model::MicroBatch ChainLoader::next() {
  constexpr int64_t kLength = 5;
  const int64_t rows = split_.global_batch / (split_.accumulation * split_.world_size);
  const int64_t step = drawn_ / split_.accumulation;
  const int64_t micro = drawn_++ % split_.accumulation;
  model::MicroBatch batch;
  batch.tokens = torch::empty({rows, kLength}, torch::kLong);
  batch.targets = torch::empty({rows, kLength}, torch::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t index = (micro * split_.world_size + split_.rank) * rows + row;
    const int64_t sample = step * split_.global_batch + index;
    batch.samples.push_back(sample);
    for (int64_t t = 0; t < kLength; ++t) {
      batch.tokens[row][t] = (sample * 31 + t * 7) % vocab_;
      batch.targets[row][t] =
          (sample + t) % 7 == 0 ? model::kIgnoreIndex : (sample * 31 + t * 7 + 7) % vocab_;
    }
  }
  return batch;
}

std::vector<size_t> backward_order(size_t blocks, int64_t micro_batches) {
  std::vector<size_t> order;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    for (size_t block = blocks; block-- > 0;) order.push_back(block);
  }
  return order;
}

}  // namespace zeroth::testing
