// How much of what the machine can do a step does.
#pragma once

#include <cstdint>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/engine.h"
#include "model/spec.h"

namespace zeroth::trainer {

class MfuMeter {
 public:
  // `rows`: samples of a step.
  MfuMeter(model::ModelSpec spec, int64_t rows);

  // Matrix products in the working precision, of all ranks at once, at most 50 ms of their time: by
  // what multiplies in the model, too. Leaves the share unknown where a rank's memory does not
  // suffice. Collective, blocks.
  void measure(configs::Precision precision, comm::DeviceMesh& mesh);

  // What forward and backward of a step compute, over all ranks, as a part of what the ranks'
  // products do in that time. Counted is what runs: positions with their padding, attention to rows
  // of their mean length, and the head's products with trained tokens; recomputed work does not
  // count. A NaN before measure(), and from the first step on that does more than was measured: the
  // measurement was wrong then.
  double measure_step(const engine::StepStats& stats, double seconds);

 private:
  double flops(const engine::StepStats& stats) const;

  model::ModelSpec spec_;
  int64_t rows_;
  double peak_ = 0;  // operations per second of all ranks; 0: not known
};

}  // namespace zeroth::trainer
