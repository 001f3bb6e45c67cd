// Ranks that share every layer have to run the same samples.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

// A hash of all tokens, targets and sample numbers of a micro-batch. Waits for a GPU.
int64_t fingerprint(const model::MicroBatch& batch);

// Throws an Error on every rank where some have drawn otherwise than the first of those that share
// their layers. It names both, and both hashes. Collective.
void verify_batches_match(int64_t fingerprint, int64_t step, const comm::DeviceMesh& mesh);
// The same of what this rank has drawn; nothing where no ranks share layers.
void verify_batches_match(const model::MicroBatch& batch, int64_t step,
                          const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
