// Agreement of all ranks to stop an operation at the same point once one rank requests it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/machine/timer.h"
#include "comm/device_mesh.h"

namespace zeroth::engine {

class StopAgreement {
 public:
  // `stop_requested` is this rank's, called often and from the calling thread; empty: it never
  // requests a stop.
  StopAgreement(const comm::DeviceMesh& mesh, std::function<bool()> stop_requested)
      : mesh_(mesh), stop_requested_(std::move(stop_requested)) {}

  // Returns whether some rank has requested a stop: the same on all ranks, and true forever once it
  // is true. Call it at the same points on all ranks. Ranks exchange requests at the first points
  // and then about every tenth of a second, at the pace of the slowest, so that most calls cost
  // nothing if points follow quickly. Collective.
  bool stop_agreed();

 private:
  bool local_request() const { return stop_requested_ && stop_requested_(); }

  const comm::DeviceMesh& mesh_;
  std::function<bool()> stop_requested_;
  bool agreed_ = false;
  int64_t stride_ = 1;       // points between two exchanges
  int64_t points_left_ = 0;  // until the next exchange
  Timer since_exchange_;
};

}  // namespace zeroth::engine
