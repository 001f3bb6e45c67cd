// Tape: what forward leaves for backward. Per block it holds the input and, unless the block is
// recomputed, its autograd graph.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/step/saved_inputs.h"
#include "model/block.h"

namespace zeroth::engine {

class Tape {
 public:
  // Blocks before `first_with_input_gradient` get no gradient of their input, as no parameter
  // before them is trained. `kept` stores the inputs of offload(); null: in place.
  explicit Tape(size_t num_blocks, size_t first_with_input_gradient = 0,
                std::shared_ptr<SavedInputs> kept = nullptr)
      : records_(num_blocks),
        saved_inputs_(kept ? std::move(kept) : save_in_place(num_blocks)),
        first_with_input_gradient_(first_with_input_gradient) {}

  // Runs the block on x and keeps its graph until backward(); detaches x from the graph that made
  // it.
  torch::Tensor forward(model::Block& block, size_t index, const torch::Tensor& x,
                        const model::MicroBatch& batch);
  // Runs the block and keeps nothing; keep_input() keeps an input.
  torch::Tensor forward_without_graph(model::Block& block, const torch::Tensor& x,
                                      const model::MicroBatch& batch);
  void keep_input(size_t index, const torch::Tensor& x) { records_[index].input = x; }
  const torch::Tensor& input(size_t index) const { return records_[index].input; }
  // Offloads an input that is not needed soon. Call restore() before input(), and prefetch()
  // earlier to overlap the transfer with other work.
  void offload(size_t index, const torch::Tensor& x) { saved_inputs_->save(index, x); }
  void prefetch(size_t index) { saved_inputs_->prefetch(index); }
  void restore(size_t index) { keep_input(index, saved_inputs_->restore(index)); }

  // Returns the gradient of the block's input (undefined if it has none); adds parameter gradients
  // to the open views. Frees the block's record. An undefined dy means that nothing after the block
  // needs a gradient.
  torch::Tensor backward(size_t index, const torch::Tensor& dy);

 private:
  struct Record {
    torch::Tensor input;   // a leaf
    torch::Tensor output;  // the end of the block's graph
  };
  std::vector<Record> records_;
  std::shared_ptr<SavedInputs> saved_inputs_;
  size_t first_with_input_gradient_;
};

}  // namespace zeroth::engine
