// A description of a run's environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/device_mesh.h"

namespace zeroth::trainer {

using TitledLines = std::vector<std::pair<std::string, std::string>>;  // title, text

// Returns versions, machine, ranks, directory and command line of this process. `threads`: of this
// rank.
TitledLines environment_lines(const comm::DeviceMesh& mesh, int threads);

// Returns "2 on cpu, 1 thread each, avx512"; the last part is the instruction set of a CPU that
// computes.
std::string ranks_text(const comm::DeviceMesh& mesh, int threads);

// Returns arguments quoted for a shell.
std::string command_text(const std::vector<std::string>& arguments);

}  // namespace zeroth::trainer
