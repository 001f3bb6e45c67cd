#include "launcher/flags/foreign_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "base/text/units.h"

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

// Commands of DeepSpeed and what replaces them.
constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
    {"deepspeed", "use zeroth, with the same flags: 'zeroth --num_gpus 2 finetune ...'"},
    {"deepspeed.pt", "use zeroth, with the same flags"},
    {"ds", "use zeroth, with the same flags"},
    {"ds_report", "use 'zeroth report'"},
    {"dsr", "use 'zeroth report'"},
    {"ds_bench", "use 'zeroth --num_gpus 2 comm-bench'"},
    {"zero_to_fp32", "use 'zeroth export DIR OUT --dtype fp32'"},
    {"ds_to_universal", "not needed: every checkpoint resumes on any number of ranks"},
    {"ds_elastic", "use 'zeroth check-config FILE', which shows the batch sizes"},
    {"ds_ssh", "use pdsh or ssh; 'zeroth --hostfile FILE PROGRAM' starts a program on all hosts"},
    {"ds_io", "no tuning is needed: docs/offload.md says how fast a disk must be"},
    {"ds_nvme_tune", "no tuning is needed: docs/offload.md says how fast a disk must be"},
};

}  // namespace

void add_foreign_flags(CLI::App& app, ForeignFlags& found) {
  for (const ForeignFlag& row : kWithoutEffect) {
    const auto note = [&found, row] {
      found.notes.push_back(fmt::format("{} has no effect: {}", row.names, row.reason));
    };
    app.add_flag_callback(row.names, note, row.reason);
  }
  const auto refuse = [&found](const ForeignFlag& row) {
    std::string_view names = row.names;
    found.refusals.push_back(fmt::format("{}: {}", next_field(names, ','), row.reason));
  };
  for (const ForeignFlag& row : kRefused)
    app.add_flag_callback(row.names, [refuse, row] { refuse(row); })->group("");
  for (const ForeignFlag& row : kRefusedWithValue)
    app.add_option_function<std::string>(row.names,
                                         [refuse, row](const std::string&) { refuse(row); })
        ->group("");
}

std::string_view replacement_for(std::string_view program) {
  const size_t slash = program.rfind('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  if (program.ends_with(".py")) program.remove_suffix(3);
  for (const auto& [name, replacement] : kCommands)
    if (name == program) return replacement;
  return {};
}

}  // namespace zeroth::launcher
