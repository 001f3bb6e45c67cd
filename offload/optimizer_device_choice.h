// Who updates what rests on the host: the host where it rests, or the GPU, through which it is
// streamed.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "device/host_link.h"

namespace zeroth::offload {

struct UpdateRates {
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  double host_elements_per_s = 0;  // of the optimizer's rule in host memory
};

// That cross the link for one element of a rank's shards.
struct UpdateBytes {
  int64_t parameter = 0;  // back to the device, when the host updates
  int64_t to_device = 0;  // when the device does: masters, states, gradient
  int64_t to_host = 0;    // when the device does: masters and states, parameters that rest there
};

struct OptimizerDeviceChoice {
  bool on_device = false;
  double host_s = 0;    // for a thousand million elements
  double device_s = 0;  // for a thousand million elements
  std::string why;      // one line for a person
};

// Pure. Both ways are pipelines, as slow as their slowest part: on the host the update itself or
// the parameters' way back; on the device the ways there and back, which go on at once. On a tie
// the host, which leaves the link to others. What a forward hides is not counted, as its length is
// not known before the first one: updates on the host pass beside it, those on the device between
// its blocks. So where the host is slower by less than a forward takes, the device is chosen and
// the host would have been as good or better. Ranks have to agree: give each the least rates of
// all.
OptimizerDeviceChoice choose_optimizer_device(const UpdateRates& rates, const UpdateBytes& bytes);

// Called before each measurement that counts: returns on all ranks that share the machine at about
// the same time, so that each has the rate that is left to it beside the others.
using RankBarrier = std::function<void()>;

inline constexpr int64_t kLinkProbeBytes = int64_t{64} << 20;

// The link's rates with copies of `bytes` bytes, each way alone: the median of a few after one that
// warms up. Takes twice so much memory of the host and so much of the device while it measures.
UpdateRates measure_link(
    device::HostLink& link, torch::Device device, const RankBarrier& barrier = [] {},
    int64_t bytes = kLinkProbeBytes);
// Elements per second of `update`, which works on `elements` elements each time it is called; more
// than caches hold. Measured as the link is.
double measure_rate(
    int64_t elements, const std::function<void()>& update, const RankBarrier& barrier = [] {});

}  // namespace zeroth::offload
