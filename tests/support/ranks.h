// Ranks as threads of this process, joined over an in-process store.
#pragma once

#include <functional>
#include <memory>

#include "comm/mesh.h"

namespace zeroth::testing {

enum class Transport { kSharedMemory, kGloo };

// Calls fn on `count` ranks at once and waits for all; rethrows the first exception of any of them.
// A collective that waits longer than a minute fails.
void run_ranks(int count, const std::function<void(std::shared_ptr<comm::Mesh>)>& fn,
               Transport transport = Transport::kSharedMemory,
               const std::function<void(int rank)>& before_joining = {});

}  // namespace zeroth::testing
