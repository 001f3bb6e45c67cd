// BlockRunner: the only loops over blocks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "engine/step/schedule.h"
#include "engine/step/tape.h"
#include "model/block.h"
#include "zero/block_params.h"
#include "zero/grad_reducer.h"

namespace zeroth::engine {

class PhaseTimer;

class BlockRunner {
 public:
  // Keeps references to all arguments.
  BlockRunner(const model::Blocks& blocks, zero::BlockParams& params, zero::GradReducer& grads)
      : blocks_(blocks), params_(params), grads_(grads) {}

  // Runs the chunk on its input `x`, undefined before the first block. Returns the output, of the
  // last block the loss. Leaves on the tape what backward needs.
  torch::Tensor forward(const ModelChunk& chunk, torch::Tensor x, const model::MicroBatch& batch,
                        Tape& tape);
  // Returns the output like forward(), without a tape, with blocks in evaluation mode
  // (torch::nn::Module::eval).
  torch::Tensor evaluate(const ModelChunk& chunk, torch::Tensor x, const model::MicroBatch& batch);
  // Runs from the gradient of the chunk's output back to that of its input, which it returns;
  // undefined if nothing before the chunk is trained. Passes gradients to the reducer block by
  // block: with kBackwardInput only the last block's, whose loss gives both at once, and
  // backward_weight() passes the others. Calls `prefetch_next`, if set, before each segment after
  // which the chunk needs no saved input.
  torch::Tensor backward(const ModelChunk& chunk, PipeOpKind kind, torch::Tensor dy,
                         const model::MicroBatch& batch, Tape& tape,
                         const std::function<void()>& prefetch_next = {});
  void backward_weight(const ModelChunk& chunk, Tape& tape);
  // Starts to bring back the first saved input that backward of the chunk needs.
  static void prefetch_input(const ModelChunk& chunk, Tape& tape);
  // Calls `visit(block)` for every block, in order, while its parameters are gathered if this rank
  // holds it. `operation` is for current_operation().
  void for_each_gathered(const char* operation, const std::function<void(size_t block)>& visit);

  // Returns the running block and its operation, "backward of block layers.3", or an empty string
  // if none runs. Keeps the last one if a block throws.
  std::string current_operation() const;

  // Turns on or off the check of every later block output (one pass over each), which finds the
  // first output that is not finite.
  void inspect_outputs(bool on) {
    inspecting_ = on;
    first_bad_output_.reset();
  }
  std::optional<size_t> first_bad_output() const { return first_bad_output_; }
  // Sets the timer that ends a phase after each block: part `block` in forward, number of blocks +
  // `block` in backward. Null turns timing off.
  void set_block_timer(PhaseTimer* timer) { timer_ = timer; }

 private:
  torch::Tensor run_forward(const Segment& segment, torch::Tensor x, const model::MicroBatch& batch,
                            Tape& tape);
  void recompute_segment(const Segment& segment, const model::MicroBatch& batch, Tape& tape);
  void record_time(size_t part, double excluded_seconds = 0) const;
  void set_position(size_t block, const char* operation) { position_ = {block, operation}; }

  struct BlockPosition {
    size_t block = 0;
    const char* operation = nullptr;  // null: no block runs
  };
  const model::Blocks& blocks_;
  zero::BlockParams& params_;
  zero::GradReducer& grads_;
  BlockPosition position_;
  bool inspecting_ = false;
  PhaseTimer* timer_ = nullptr;
  std::optional<size_t> first_bad_output_;
};

}  // namespace zeroth::engine
