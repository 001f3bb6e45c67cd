// Storage of the inputs of recomputed segments between forward and backward.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "device/host_link.h"

namespace zeroth::engine {

class SavedInputs {
 public:
  virtual ~SavedInputs() = default;
  // Saves block `block`'s input, which may be undefined, until restore(); replaces one that was not
  // restored.
  virtual void save(size_t block, const torch::Tensor& x) = 0;
  // Starts to bring the input back, concurrently with other work, as restore() will follow soon.
  virtual void prefetch(size_t block) = 0;
  // Returns the saved values, ordered on the current stream. Frees their storage.
  virtual torch::Tensor restore(size_t block) = 0;

  // Returns notes for the user, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Returns a storage that keeps inputs where they are.
std::unique_ptr<SavedInputs> save_in_place(size_t num_blocks);

// Returns a storage that offloads inputs to CPU memory, which it reuses for the next step's. The
// last input, which backward needs first, is never offloaded. The two before it are copied to the
// CPU, but keep their device memory, so that backward need not wait for them. Until backward
// begins, at most three inputs are on the device: if the link is slower than the computation, the
// current stream waits. The CPU waits for the device only if an input needs more CPU memory than
// the previous one in its buffer, or if CPU memory cannot be page-locked.
std::unique_ptr<SavedInputs> save_on_cpu(size_t num_blocks, std::shared_ptr<device::HostLink> link);

// Returns the storage that recompute.cpu_checkpointing selects: on the CPU only if the blocks run
// on another device.
std::unique_ptr<SavedInputs> make_saved_inputs(size_t num_blocks,
                                               const configs::RecomputeConfig& config,
                                               torch::Device device);

}  // namespace zeroth::engine
