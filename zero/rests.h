// The resting places of a run, and which unit's shards rest in which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "offload/staging.h"
#include "optim/update_rule.h"
#include "zero/grad_landing.h"
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
  // Null where the host is the device, or nothing rests on it.
  std::shared_ptr<device::HostLink> link;
  std::shared_ptr<offload::Staging> staging;
  std::shared_ptr<GradLanding> landing;  // null: gradients rest on the device
  std::vector<std::unique_ptr<offload::ShardStore>> stores;
  std::vector<std::unique_ptr<optim::UpdateRule>> rules;
  std::vector<offload::ShardStore*> params;  // as ParamStoreOptions::rests
  size_t max_param_reads = SIZE_MAX;         // as ParamStoreOptions::max_reads
  std::vector<UpdatePlace> updates;          // [unit]
  ShardedOptimizer::Options options;
  bool update_before_use = false;  // as BlockParams::Options

  std::vector<std::string> choices;  // made at the start, for the user

  // Of all stores together; of the link where none has any of its own.
  offload::Traffic traffic() const;
  // What the user should know, one line each.
  std::vector<std::string> notes() const;
};

// `link`: the host's side of the mesh's device; null where they are one. No file is made yet: that
// is when the first tile is asked for. Throws an Error that names the key for sizes that cannot
// work. Collective with a link: rates are measured.
Rests make_rests(const UnitPlan& plan, const configs::Config& config, const comm::Mesh& mesh,
                 std::shared_ptr<device::HostLink> link = nullptr);

}  // namespace zeroth::zero
