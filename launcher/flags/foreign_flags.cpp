#include "launcher/flags/foreign_flags.h"

#include <fmt/format.h>

namespace zeroth::launcher {
namespace {

struct ForeignFlag {
  const char* names;
  const char* reason;
};

// Flags without a value.
constexpr ForeignFlag kWithoutEffect[] = {
    {"--no_python", "PROGRAM is always started as it is"},
    {"--no_local_rank", "no --local_rank is ever added to PROGRAM's arguments"},
};

constexpr ForeignFlag kRefused[] = {
    {"--module", "PROGRAM is started as it is; write 'zeroth python3 -m MODULE ...'"},
};

constexpr ForeignFlag kRefusedWithValue[] = {
    {"--venv_script",
     "PROGRAM is not started by a shell that could source it; give the program by its path, as "
     "'zeroth VENV/bin/python3 ...', or put the variables that it exports into .deepspeed_env"},
    {"--autotuning", "there is no tuner; leave it out"},
    {"--nproc_per_node,--nproc-per-node", "it is a flag of torchrun; use --num_gpus"},
    {"--nnodes",
     "it is a flag of torchrun; list the hosts in a --hostfile, of which --num_nodes selects the "
     "first ones; for MIN:MAX use --elastic"},
};

std::string first_long_name(const std::string& names) {
  const size_t start = names.find("--");
  return names.substr(start, names.find(',', start) - start);
}

}  // namespace

void add_foreign_flags(CLI::App& app, ForeignFlags& found) {
  for (const ForeignFlag& row : kWithoutEffect) {
    const auto note = [&found, row] {
      found.notes.push_back(fmt::format("{} has no effect: {}", row.names, row.reason));
    };
    app.add_flag_callback(row.names, note, row.reason);
  }
  const auto refuse = [&found](const ForeignFlag& row) {
    found.refusals.push_back(fmt::format("{}: {}", first_long_name(row.names), row.reason));
  };
  for (const ForeignFlag& row : kRefused)
    app.add_flag_callback(row.names, [refuse, row] { refuse(row); })->group("");
  for (const ForeignFlag& row : kRefusedWithValue)
    app.add_option_function<std::string>(row.names,
                                         [refuse, row](const std::string&) { refuse(row); })
        ->group("");
}

}  // namespace zeroth::launcher
