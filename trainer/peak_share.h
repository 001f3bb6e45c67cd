// How much of what the machine can do a step does.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "configs/config.h"
#include "model/spec.h"

namespace zeroth::trainer {

class PeakShare {
 public:
  // Samples count as full ones, of `seq_len` positions.
  PeakShare(const model::ModelSpec& spec, int64_t seq_len);

  // Matrix products of all ranks at once, at most 50 ms for each precision: the working one, and
  // fp32, which is the faster one on some CPUs. Leaves the share unknown where a rank's memory does
  // not suffice. Collective, blocks.
  void measure(configs::Precision precision, comm::Mesh& mesh);

  // Forward and backward of so many tokens, over all ranks, as a part of what the ranks' products
  // do in that time. Recomputed work does not count. A NaN before measure().
  double of(int64_t tokens, double seconds) const;

 private:
  double flops_per_token_;
  double peak_ = 0;  // operations per second of all ranks; 0: not measured
};

}  // namespace zeroth::trainer
