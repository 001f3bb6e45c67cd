// The resting places of a run, and which unit's shards rest in which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "offload/shard_store.h"
#include "optim/update_rule.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::zero {

// Bytes of the buffers behind a file, and how it is cut. Elements of a tile; 0 where no file is.
struct FileTiles {
  int64_t elements = 0;
  int64_t buffers = 0;
  int64_t buffer_bytes = 0;
};

// Of the file of optimizer states when `largest` is the largest share in it of a unit with `arrays`
// of fp32 each (states and, in 16-bit runs, the master).
FileTiles optimizer_tiles(const configs::ZeroConfig& zero, int64_t largest, int64_t arrays);

// Of the file of parameters. Throws an Error that names key and the smallest value that works when
// a buffer cannot hold `largest` elements.
FileTiles parameter_tiles(const configs::OffloadParamConfig& config, int64_t largest,
                          int64_t element_size);

struct Rests {
  std::vector<std::unique_ptr<offload::ShardStore>> stores;
  std::vector<std::unique_ptr<optim::UpdateRule>> rules;
  std::vector<offload::ShardStore*> params;  // as ParamStoreOptions::rests
  size_t max_param_reads = SIZE_MAX;         // as ParamStoreOptions::max_reads
  std::vector<UpdatePlace> updates;          // [unit]
  ShardedOptimizer::Options options;

  offload::Traffic traffic() const;  // of all stores together
};

// No file is made yet: that is when the first tile is asked for. Throws an Error that names the key
// for sizes that cannot work.
Rests make_rests(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
                 const std::vector<Retention>& retention);

}  // namespace zeroth::zero
