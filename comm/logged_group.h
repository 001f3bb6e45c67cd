// A Group that writes down what another one does.
#pragma once

#include <memory>

#include "comm/comm_log.h"
#include "comm/group.h"

namespace zeroth::comm {

// Every collective that `log` counts has ended when its call returns, on a GPU too: its time is
// exact, and nothing overlaps with it. Keeps a reference to `log`.
std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log);

}  // namespace zeroth::comm
