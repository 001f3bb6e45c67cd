// Check that ranks that share every layer run the same samples.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

// Returns a hash of all tokens, targets and sample indices of a micro-batch. Waits for a GPU.
int64_t fingerprint(const model::MicroBatch& batch);

// Throws an Error on every rank if a rank's fingerprint differs from that of the first rank in its
// tensor-parallel group. The Error names both ranks and both hashes. Collective.
void verify_batches_match(int64_t fingerprint, int64_t step, const comm::DeviceMesh& mesh);
// Verifies this rank's micro-batch; does nothing if no ranks share layers.
void verify_batches_match(const model::MicroBatch& batch, int64_t step,
                          const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
