// The chain that trains in milliseconds: embedding, layers of tanh(x W + b) + x, head. Its blocks'
// parameters hold values.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/engine_impl.h"
#include "engine/loader.h"
#include "model/block.h"

namespace zeroth::testing {

struct ChainOptions {
  int64_t vocab = 19;
  int64_t hidden = 6;
  int64_t layers = 3;
  bool tied = false;    // the head's weight is the embedding's
  bool frozen = false;  // the second layer's weight is not trained
};

// The same values whenever it is called with the same options.
model::Blocks make_chain(const ChainOptions& options = {});

// zeroth::initialize with its default options. Engine::impl() has the inside to look at.
std::unique_ptr<engine::Engine> make_engine(model::Blocks blocks, const configs::Config& config,
                                            std::shared_ptr<comm::DeviceMesh> mesh);

// A copy of this rank's shard of a unit's parameters after the updates so far.
torch::Tensor shard_of(engine::Engine& engine, size_t unit);

// Micro-batches of rows x 5 tokens that depend on (step, index in the global batch) only, so that
// any split of a global batch over ranks and micro-batches runs the same samples. Every seventh
// target is not trained.
class ChainLoader final : public engine::DataLoader {
 public:
  struct Split {
    int64_t global_batch = 12;
    int64_t accumulation = 1;
    int rank = 0;
    int world_size = 1;
  };
  explicit ChainLoader(const Split& split, int64_t vocab = 19) : split_(split), vocab_(vocab) {}
  model::MicroBatch next() override;
  std::optional<Position> position() const override {
    const int64_t step = drawn_ / split_.accumulation;
    return Position{.step = step, .sample = step * split_.global_batch};
  }
  void seek(const Position& position) override { drawn_ = position.step * split_.accumulation; }

 private:
  Split split_;
  int64_t vocab_;
  int64_t drawn_ = 0;
};

// The blocks of a step in the order of their backward passes, one micro-batch after the other.
std::vector<size_t> backward_order(size_t blocks, int64_t micro_batches);

}  // namespace zeroth::testing
