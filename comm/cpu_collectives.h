// Agreement of ranks on a few numbers or strings, on the CPU: no call waits for a device, and no
// device waits. Every function is collective over all ranks of the mesh, unless it says otherwise;
// `what` names the values in the message of a rank that times out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device_mesh.h"

namespace zeroth::comm {

// Replaces each value by the sum, minimum or maximum over all ranks.
void all_reduce_values(std::span<double> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh);
void all_reduce_values(std::span<int64_t> values, ReduceOp op, std::string_view what,
                       const DeviceMesh& mesh);

// Returns the minimum or maximum of the values of all ranks.
int64_t min_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh);
int64_t max_over_ranks(int64_t value, std::string_view what, const DeviceMesh& mesh);

// Returns the strings of the group's ranks, in rank order. Collective over the group, which accepts
// CPU tensors.
std::vector<std::string> all_gather_strings(const std::string& own, std::string_view what,
                                            Group& group);

// Name of the collective of barrier().
inline constexpr std::string_view kBarrier = "a barrier";

// Returns when every rank of the mesh has called it. Devices may still be busy.
void barrier(const DeviceMesh& mesh);

}  // namespace zeroth::comm
