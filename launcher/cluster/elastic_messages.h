// Messages of an elastic run about its nodes. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace zeroth::launcher {

// Returns "host b has joined", "hosts b, c have joined".
std::string describe_joined(const std::vector<std::string>& hosts);

// Returns "host b was sent SIGTERM".
std::string describe_signaled(const std::vector<std::string>& hosts, int signal);

// Returns "1 host of at least 2 available: waiting up to 600 s for more; no answer yet from b".
std::string describe_waiting(size_t num_there, int min_nodes, std::chrono::milliseconds limit,
                             const std::vector<std::string>& silent);

// Explains why a run ends without a quorum; `there` are the nodes that are present.
std::string describe_missing_quorum(const std::vector<std::string>& there, int min_nodes,
                                    std::chrono::milliseconds waited, int requeue_code);

}  // namespace zeroth::launcher
