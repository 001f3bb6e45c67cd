// Chooses which device updates state that is offloaded to the CPU: the CPU in place, or the GPU,
// through which the state is streamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "device/host_link.h"
#include "device/tensor.h"
#include "zero/memory_plan.h"
#include "zero/offload_plan.h"

namespace zeroth::zero {

struct UpdateRates {
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  double host_elements_per_s = 0;  // of the optimizer's rule in CPU memory
};

// UpdateBytes cross the link for each element of a rank's shards.
struct UpdateBytes {
  int64_t parameter = 0;  // back to the device, if the CPU updates
  int64_t to_device = 0;  // if the device updates: masters, states, gradient
  int64_t to_host = 0;    // if the device updates: masters, states, offloaded parameters
};

struct OptimizerDeviceChoice {
  bool on_device = false;
  double host_s = 0;    // for 10^9 elements
  double device_s = 0;  // for 10^9 elements
  std::string why;      // one line for users
};

// Chooses the faster device. Pure. Both ways are pipelines, as slow as their slowest stage: on the
// CPU the update itself or the parameters' transfer back; on the device the transfers in both
// directions, which overlap. A tie goes to the CPU, which leaves the link to other traffic. The
// forward's overlap is not counted, because its length is unknown before the first one: CPU updates
// overlap with it, device updates run between its blocks. So if the CPU is slower by less than a
// forward takes, the function chooses the device, although the CPU is as good or better. Ranks must
// agree: pass the minimum rates of all ranks.
OptimizerDeviceChoice choose_optimizer_device(const UpdateRates& rates, const UpdateBytes& bytes);

// A RankBarrier is called before each measurement that counts. It returns on all ranks of the node
// at about the same time, so that each measures the rate that it gets beside the others.
using RankBarrier = std::function<void()>;

inline constexpr int64_t kLinkProbeBytes = int64_t{64} << 20;

// Measures the link's rates with copies of `bytes` bytes, each direction alone: the median of a few
// after a warm-up. Allocates 2 * `bytes` of CPU memory and `bytes` of device memory meanwhile.
UpdateRates measure_link(
    device::HostLink& link, torch::Device device, const RankBarrier& barrier = [] {},
    int64_t bytes = kLinkProbeBytes);
// Returns the elements per second of `update`, which processes `elements` elements in each call,
// more than fit into caches. Measures as measure_link() does.
double measure_rate(
    int64_t elements, const std::function<void()>& update, const RankBarrier& barrier = [] {});

// Returns the bytes that cross the link for an element.
UpdateBytes bytes_per_element(const OffloadPlan& plan);

// Measures the rates of the link and of the CPU, on all ranks at the same time, which takes a
// fraction of a second. Returns the same choice on every rank. Collective.
OptimizerDeviceChoice measure_optimizer_device(const OffloadPlan& plan,
                                               const configs::Config& config,
                                               const comm::DeviceMesh& mesh,
                                               device::HostLink& link);
// Returns the maximum memory of that measurement in each tier, freed when it returns; zero if the
// plan names an optimizer device.
TierBytes calibration_bytes(const OffloadPlan& plan);

}  // namespace zeroth::zero
