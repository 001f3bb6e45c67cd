// What the command line of PROGRAM says: whether it only prints, where it saves checkpoints, and
// over how many ranks it divides a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

// Returns the last value that a program's arguments give to one of these flags; empty: none. Reads
// the file if the only argument is a .json file of flags; one that cannot be parsed has none.
std::string find_argument(const std::vector<std::string>& command,
                          const std::vector<std::string_view>& flags);

// The number of ranks that one copy of a model is divided among.
struct ModelParallelSize {
  int64_t pipeline = 1, tensor = 1;
  int64_t num_ranks() const { return pipeline * tensor; }
};

// Returns the size that finetune's flags and their ds_config.json request. 1 x 1 for what it cannot
// read, and for another program.
ModelParallelSize model_parallel_size(const std::vector<std::string>& command);

// Returns a text that identifies the newest complete checkpoint of the directory that the program's
// --output or --output_dir names, on the command line or in its only argument, a .json file. The
// text changes when another checkpoint is committed. Empty if there is none, or if this machine
// cannot read it.
std::string newest_checkpoint(const std::vector<std::string>& command);

// Returns whether another checkpoint was committed between these two results of
// newest_checkpoint().
inline bool has_new_checkpoint(const std::string& before, const std::string& after) {
  return !after.empty() && after != before;
}

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
