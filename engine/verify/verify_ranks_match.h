// Checks that ranks that work together were given the same: processors, blocks, samples.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/machine/cpu.h"
#include "comm/device_mesh.h"
#include "model/block.h"
#include "model/micro_batch.h"

namespace zeroth::engine {

// CpuProfile is what selects kernels and libraries.
struct CpuProfile {
  CpuIsa level = cpu_isa();
  bool is_intel = cpu_is_intel();
  MatmulBackends products = matmul_backends();
};

// Throws an Error on all ranks that names two ranks whose ISA levels, processor makers or matmul
// backends differ, unless the ranks compute on GPUs. `own` is this rank's profile. Collective.
void verify_cpu_isa_matches(const CpuProfile& own, const comm::DeviceMesh& mesh);

// Throws an Error on every rank unless the ranks of each tensor-parallel group hold each global
// parameter together, every element once (or with the number of replicas that each rank states),
// use the same layout for what they gather together, and have the same buffers, except for slices
// of them. The Error names two ranks, the parameter, and each rank's statement. Collective over all
// ranks; does nothing if no ranks share layers.
void verify_sharding_matches(const model::Blocks& blocks, const comm::DeviceMesh& mesh);

// Returns a list of {"name", "shape", "boxes"}, in the format of the parameters of
// verify_sharding_matches(). Buffers in Block::splits() are listed as slices of the global buffer;
// any other is full, with `ranks` replicas, and has a "crc32c" of its values, which must match on
// all ranks. All blocks must have splits().
nlohmann::json describe_buffers(const model::Blocks& blocks, int ranks);

// Throws an Error on every rank that names two ranks which divide the blocks among the stages of a
// pipeline differently. Collective; does nothing without a pipeline.
void verify_partition_matches(const std::vector<int>& block_pp_ranks, const comm::DeviceMesh& mesh);

// Returns whether other ranks get the same batch.
bool shares_batches(const comm::DeviceMesh& mesh);

// Returns a hash of all tokens, targets and sample indices of a micro-batch. Waits for a GPU.
int64_t fingerprint(const model::MicroBatch& batch);

// Throws an Error on every rank if a rank's fingerprint differs from that of the first rank that
// gets the same samples: in its tensor-parallel group, or another stage of its pipeline. The Error
// names both ranks and both hashes. Collective.
void verify_batches_match(int64_t fingerprint, int64_t step, const comm::DeviceMesh& mesh);
// Verifies this rank's micro-batch; does nothing without shares_batches().
void verify_batches_match(const model::MicroBatch& batch, int64_t step,
                          const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
