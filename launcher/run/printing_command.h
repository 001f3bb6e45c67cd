// Detects commands whose result is their output.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct PrintingCommand {
  bool output_required = false;  // lost output is a failure
  bool single_rank = false;  // all ranks would print the same, or only the first one would print
  bool unprefixed_lines = false;  // for a file or another program: no rank prefixes
};

// Classifies `command`, the program and its arguments as they are started. For programs other than
// finetune only a lone --help, -h or --version is known to print text; -h beside other arguments
// may mean anything else.
PrintingCommand printing_command(const std::vector<std::string>& command);

}  // namespace zeroth::launcher
