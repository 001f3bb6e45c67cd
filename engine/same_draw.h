// Ranks that share every layer have to run the same samples.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

// A hash of all tokens, targets and sample numbers of a micro-batch. Waits for a GPU.
int64_t fingerprint(const model::MicroBatch& batch);

// Throws an Error on every rank where some have drawn otherwise than the first of those that share
// their layers. It names both, and both hashes. Collective.
void require_same_draw(int64_t fingerprint, int64_t step, const comm::Mesh& mesh);
// The same of what this rank has drawn; nothing where no ranks share layers.
void require_same_draw(const model::MicroBatch& drawn, int64_t step, const comm::Mesh& mesh);

}  // namespace zeroth::engine
