// What ranks agree on: a few numbers or words, on the host. No device is waited for, and none
// waits. All of it is collective over all ranks of the mesh; `what` names the values in the message
// of a rank that waits in vain.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device_mesh.h"

namespace zeroth::comm {

// Each value becomes the sum, the least or the greatest of all ranks'.
void all_reduce_values(std::span<double> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh);
void all_reduce_values(std::span<int64_t> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh);

// The least and the greatest of the values of all ranks.
int64_t min_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh);
int64_t max_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh);

// The texts of the ranks of a group, in their order. Collective over the group, which takes tensors
// of the CPU.
std::vector<std::string> all_gather_strings(const std::string& own, std::string_view what,
                                            Group& group);

// How barrier() names its collective.
inline constexpr std::string_view kBarrier = "a barrier";

// Returns when every rank of the mesh has called it. Devices may still be at work.
void barrier(const DeviceMesh& mesh);

}  // namespace zeroth::comm
