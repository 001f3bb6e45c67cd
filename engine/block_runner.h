// The only loops over blocks.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/lap_clock.h"
#include "engine/model_sink.h"
#include "engine/schedule.h"
#include "engine/tape.h"
#include "model/block.h"
#include "zero/block_params.h"
#include "zero/grad_reducer.h"

namespace zeroth::engine {

class BlockRunner {
 public:
  // Keeps references to all of them.
  BlockRunner(const model::Blocks& blocks, zero::BlockParams& params, zero::GradReducer& grads,
              const std::vector<Segment>& segments)
      : blocks_(blocks), params_(params), grads_(grads), segments_(segments) {}

  // The last block's output: the loss, or logits. Leaves on the tape what backward needs.
  torch::Tensor forward(const model::MicroBatch& batch, Tape& tape);
  // The output without a tape, of blocks in evaluation (torch::nn::Module::eval). Asks `ends`
  // before each of them; undefined where that ended it.
  torch::Tensor evaluate(const model::MicroBatch& batch, const std::function<bool()>& ends);
  // From the loss back to the first block; gradients reach the reducer block by block.
  void backward(const model::MicroBatch& batch, bool last, Tape& tape);
  // Gives every block's parameters to `visit(block)` while they are whole. `way`: see doing().
  template <typename Visit>
  void for_each_gathered(const char* way, Visit&& visit) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      at(i, way);
      const zero::Lease lease = params_.gather(i);
      visit(i);
    }
    at_ = {};
  }

  // The block that runs, and which way: "backward of block layers.3"; empty where none does. Stays
  // when a block throws.
  std::string doing() const;

  // Looks at every block's output from now on (one pass over it each): which is the first that is
  // not finite?
  void inspect_outputs(bool on) {
    inspecting_ = on;
    first_bad_output_.reset();
  }
  std::optional<size_t> first_bad_output() const { return first_bad_output_; }
  // Marks a lap after each block from now on: part `block` in forward, number of blocks + `block`
  // in backward. Null: none.
  void time_blocks(LapClock* clock) { clock_ = clock; }

 private:
  torch::Tensor run_forward(const Segment& segment, torch::Tensor x, const model::MicroBatch& batch,
                            Tape& tape);
  void expect_input(std::vector<Segment>::const_reverse_iterator next, Tape& tape);
  void run_again(const Segment& segment, const model::MicroBatch& batch, Tape& tape);
  void inspect(size_t block, const torch::Tensor& output);
  void begin_laps() const {
    if (clock_ != nullptr) clock_->begin();
  }
  void lap(size_t part, double elsewhere = 0) const {
    if (clock_ != nullptr) clock_->lap(part, elsewhere);
  }
  void at(size_t block, const char* way) { at_ = {block, way}; }

  struct Position {
    size_t block = 0;
    const char* way = nullptr;  // null: no block runs
  };
  const model::Blocks& blocks_;
  zero::BlockParams& params_;
  zero::GradReducer& grads_;
  const std::vector<Segment>& segments_;
  Position at_;
  bool inspecting_ = false;
  LapClock* clock_ = nullptr;
  std::optional<size_t> first_bad_output_;
};

}  // namespace zeroth::engine
