// Where a run runs, in words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/device_mesh.h"

namespace zeroth::trainer {

using TitledLines = std::vector<std::pair<std::string, std::string>>;  // title, text

// Versions, machine, ranks, folder and command line of this process. `threads`: of this rank.
TitledLines environment_lines(const comm::DeviceMesh& mesh, int threads);

// "2 on cpu, 1 thread each, avx512": with the level of the CPU that computes.
std::string ranks_text(const comm::DeviceMesh& mesh, int threads);

// Arguments as a shell would take them.
std::string command_text(const std::vector<std::string>& arguments);

}  // namespace zeroth::trainer
