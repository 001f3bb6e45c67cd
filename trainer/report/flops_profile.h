// The operations of a step and how fast they ran: model FLOPs utilization (MFU) of every step, and
// flops_profiler's table of one.
#pragma once

#include <cstdint>
#include <string>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "data/samples/batch.h"
#include "engine/step/step_stats.h"
#include "model/spec.h"

namespace zeroth::trainer {

// MfuMeter computes how much of what the machine can do a step does.
class MfuMeter {
 public:
  // `rows`: number of samples in a step. `frozen`: only adapters are trained, so that backward
  // computes the gradients of inputs alone, about as much as forward.
  MfuMeter(model::ModelSpec spec, int64_t rows, bool frozen = false);

  // Measures matrix products in the working precision on all ranks at once, for at most 50 ms, with
  // the kernels that the model uses. Leaves the utilization unknown if a rank has too little
  // memory. Collective, blocks.
  void measure(torch::Dtype dtype, comm::DeviceMesh& mesh);

  // Returns what forward and backward of a step compute, over all ranks, as a fraction of what the
  // ranks' products do in that time. Counts what runs: positions with their padding, attention to
  // rows of their mean length, and the head's products with label tokens; recomputed work does not
  // count. Returns a NaN before measure(), and from the first step on that does more than was
  // measured, since the measurement was wrong then.
  double measure_step(const engine::StepStats& stats, double seconds);

 private:
  model::ModelSpec spec_;
  int64_t rows_;
  double factor_;    // of forward's operations: those of forward and backward
  double peak_ = 0;  // operations per second of all ranks; 0: unknown
};

struct ProfileFacts {
  const configs::Config& config;
  const model::ModelSpec& spec;
  data::BatchPartition batch = {};
  int64_t seq_len = 0;
  int64_t world_size = 1;
  int64_t num_parameters = 0;  // tied ones count once
};

// Returns flops_profiler's table of the step whose `stats` hold its blocks. Operations and times
// are those of one rank in one step. Operations are counted, as in model/spec.h, for full samples,
// of which tensor-parallel ranks do equal parts.
std::string profile_text(const engine::StepStats& stats, const ProfileFacts& facts);

// Replaces flops_profiler.output_file, and creates its directory if that is missing; an empty text
// only tests whether that is possible. Throws an Error that names the key and the path.
void write_profile(const std::string& path, const std::string& text);

}  // namespace zeroth::trainer
