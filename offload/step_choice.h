// Who updates what rests on the host: the host where it rests, or the GPU, through which it is
// streamed.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "offload/host_link.h"

namespace zeroth::offload {

struct StepRates {
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  double host_elements_per_s = 0;  // of the optimizer's rule in host memory
};

// Of one element of a rank's shards.
struct StepBytes {
  int64_t states = 0;     // master and moments
  int64_t parameter = 0;  // that goes back to the device when the host updates
  int64_t gradient = 0;   // that goes to the device when it updates; it rests on the host
};

struct StepChoice {
  bool on_device = false;
  double host_s = 0;    // for a thousand million elements
  double device_s = 0;  // for a thousand million elements
  std::string why;      // one line for a person
};

// Pure. Both ways are pipelines, as slow as their slowest part: on the host the update itself or
// the parameters' way back; on the device the states' way there or back, which go on at once. On
// a tie the host, which leaves the link to others. Ranks have to agree: give each the least rates
// of all.
StepChoice choose_step(const StepRates& rates, const StepBytes& bytes);

// The link's rates with copies of `bytes` bytes, each way alone. Takes twice so much memory of the
// host and so much of the device while it measures.
StepRates measure_link(HostLink& link, torch::Device device, int64_t bytes = int64_t{64} << 20);
// Elements per second of `update`, which works on `elements` elements each time it is called; more
// than caches hold. The best of a few calls after one that warms up.
double measure_rate(int64_t elements, const std::function<void()>& update);

}  // namespace zeroth::offload
