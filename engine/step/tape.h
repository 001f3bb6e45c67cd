// Tape: what forward leaves for backward. Per block it holds the input and, unless the block is
// recomputed, its autograd graph.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "device/host_link.h"
#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/main_grad.h"

namespace zeroth::engine {

// SavedInputs stores the inputs of recomputed segments between forward and backward, each under an
// index: that of the block, plus the number of blocks for each tape before its own.
class SavedInputs {
 public:
  virtual ~SavedInputs() = default;
  // Saves an input, which may be undefined, until restore(); replaces one that was not restored.
  virtual void save(size_t index, const torch::Tensor& x) = 0;
  // Starts to bring the input back, concurrently with other work, as restore() will follow soon.
  virtual void prefetch(size_t index) = 0;
  // Returns the saved values, ordered on the current stream. Frees their storage.
  virtual torch::Tensor restore(size_t index) = 0;

  // Returns notes for the user, one line each.
  virtual std::vector<std::string> notes() const = 0;
};

// Returns a storage that offloads inputs to CPU memory, which it reuses for the next step's. The
// last input is never offloaded. The two before it are copied to the CPU, but keep their device
// memory. Backward of one micro-batch after the other needs these three first and does not wait for
// them. Until backward begins, at most three inputs are on the device: if the link is slower than
// the computation, the current stream waits. The CPU waits for the device only if an input needs
// more CPU memory than the previous one in its buffer, or if CPU memory cannot be page-locked.
std::unique_ptr<SavedInputs> save_on_cpu(size_t num_inputs, std::shared_ptr<device::HostLink> link);

// Returns the storage that recompute.cpu_checkpointing selects: on the CPU only if the blocks run
// on another device; otherwise null: inputs stay where they are.
std::unique_ptr<SavedInputs> make_saved_inputs(size_t num_inputs,
                                               const configs::RecomputeConfig& config,
                                               torch::Device device);

class Tape {
 public:
  // Blocks before `first_with_input_gradient` get no gradient of their input, as no parameter
  // before them is trained. `kept` stores the inputs of offload(); null: in place. `index`: of
  // the tape, among those that exist at a time.
  explicit Tape(size_t num_blocks, size_t first_with_input_gradient = 0,
                std::shared_ptr<SavedInputs> kept = nullptr, size_t index = 0)
      : records_(num_blocks),
        saved_inputs_(std::move(kept)),
        first_saved_(index * num_blocks),
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
  void offload(size_t index, const torch::Tensor& x);
  void prefetch(size_t index);
  void restore(size_t index);

  // Returns the gradient of the block's input (undefined if it has none); adds parameter gradients
  // to the open views. Frees the block's record. An undefined dy means that nothing after the block
  // needs a gradient.
  torch::Tensor backward(size_t index, const torch::Tensor& dy);
  // Like backward(), but keeps the parameters' gradients until deliver_gradients() adds them to the
  // open views.
  torch::Tensor backward_input(size_t index, model::Block& block, const torch::Tensor& dy);
  void deliver_gradients(size_t index) { records_[index].deferred.replay(); }

 private:
  struct Record {
    torch::Tensor input;   // a leaf
    torch::Tensor output;  // the end of the block's graph
    model::DeferredGrads deferred;
  };
  std::vector<Record> records_;
  std::shared_ptr<SavedInputs> saved_inputs_;
  size_t first_saved_;  // index of the first block's input in saved_inputs_
  size_t first_with_input_gradient_;
};

}  // namespace zeroth::engine
