// What the ranks have to know of each other beside the steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"

namespace zeroth::trainer {

// The greatest of all ranks' values. `what` names it in the message of a rank that waits in vain.
// Collective.
int64_t greatest(comm::Mesh& mesh, int64_t value, std::string_view what);

// Returns when every rank has come here, and throws rank 0's complaint on all of them if it has
// one: so that no rank waits for a peer that has given up. Collective.
void throw_if_rank_0_failed(comm::Mesh& mesh, const std::optional<std::string>& complaint);

}  // namespace zeroth::trainer
