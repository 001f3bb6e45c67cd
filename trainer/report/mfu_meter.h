// Model FLOPs utilization (MFU): how much of what the machine can do a step does.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/engine.h"
#include "model/spec.h"

namespace zeroth::trainer {

class MfuMeter {
 public:
  // `rows`: number of samples in a step.
  MfuMeter(model::ModelSpec spec, int64_t rows);

  // Measures matrix products in the working precision on all ranks at once, for at most 50 ms, with
  // the kernels that the model uses. Leaves the utilization unknown if a rank has too little
  // memory. Collective, blocks.
  void measure(configs::Precision precision, comm::DeviceMesh& mesh);

  // Returns what forward and backward of a step compute, over all ranks, as a fraction of what the
  // ranks' products do in that time. Counts what runs: positions with their padding, attention to
  // rows of their mean length, and the head's products with label tokens; recomputed work does not
  // count. Returns a NaN before measure(), and from the first step on that does more than was
  // measured, since the measurement was wrong then.
  double measure_step(const engine::StepStats& stats, double seconds);

 private:
  double flops(const engine::StepStats& stats) const;

  model::ModelSpec spec_;
  int64_t rows_;
  double peak_ = 0;  // operations per second of all ranks; 0: unknown
};

}  // namespace zeroth::trainer
