// One rank's wish to end what all ranks are at becomes the wish of all, at the same point of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "comm/device_mesh.h"

namespace zeroth::engine {

class StopAgreement {
 public:
  // `wish`: this rank's, asked often and from the calling thread; empty: it has none.
  StopAgreement(const comm::DeviceMesh& mesh, std::function<bool()> stop_requested)
      : mesh_(mesh), stop_requested_(std::move(stop_requested)) {}

  // To be called at the same points on all ranks. True, on all of them alike and from then on: some
  // rank wished it. Ranks ask each other at the first points and then every tenth of a second or
  // so, by the pace of the slowest: where points follow quickly most of them cost nothing.
  // Collective.
  bool stop_agreed();

 private:
  bool local_request() const { return stop_requested_ && stop_requested_(); }
  void exchange();

  const comm::DeviceMesh& mesh_;
  std::function<bool()> stop_requested_;
  bool agreed_ = false;
  int64_t stride_ = 1;       // points between two questions
  int64_t points_left_ = 0;  // until the next one
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace zeroth::engine
