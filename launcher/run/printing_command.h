// Commands whose work is what they print.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct PrintingCommand {
  bool output_required = false;   // without its output it has failed
  bool single_rank = false;       // each rank would answer the same, or only the first one
  bool unprefixed_lines = false;  // for a file or another program: no rank's number before them
};

// `command`: the program and its arguments, as they are started. Of programs other than finetune
// only a lone --help, -h or --version is known to ask for text; -h may mean anything else.
PrintingCommand printing_command(const std::vector<std::string>& command);

}  // namespace zeroth::launcher
