// Where the inputs of recomputed segments wait for their backward.
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
  // Block `block`'s input, possibly undefined, until it is taken; replaces one that was not.
  virtual void save(size_t block, const torch::Tensor& x) = 0;
  // The input will be taken soon: it may come back beside other work.
  virtual void prefetch(size_t block) = 0;
  // The same values, ordered on the current stream. Frees what held them.
  virtual torch::Tensor restore(size_t block) = 0;

  // What the user should know, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Kept inputs stay where they are.
std::unique_ptr<SavedInputs> save_in_place(size_t num_blocks);

// Kept inputs leave for host memory, which stays for the next step's, and come back. The last
// input, which backward takes first, never leaves. The two before it are copied to the host, but
// their memory on the device stays, so that backward need not wait for them. Until it begins no
// more than three inputs are on the device: where the link is slower than what computes, the
// current stream waits. The host waits for the device only where an input needs more host memory
// than the one before in its buffer, and where host memory cannot be page-locked.
std::unique_ptr<SavedInputs> save_on_cpu(size_t num_blocks, std::shared_ptr<device::HostLink> link);

// As recompute.cpu_checkpointing says: on the host only if there is a device beside it.
std::unique_ptr<SavedInputs> make_saved_inputs(size_t num_blocks,
                                               const configs::RecomputeConfig& config,
                                               torch::Device device);

}  // namespace zeroth::engine
