#include "launcher/flags/foreign_commands.h"

namespace zeroth::launcher {
namespace {

struct CommandReplacement {
  std::string_view name;
  std::string_view replacement;
};

constexpr CommandReplacement kCommands[] = {
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

std::string_view replacement_for(std::string_view program) {
  const size_t slash = program.rfind('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  if (program.ends_with(".py")) program.remove_suffix(3);
  for (const CommandReplacement& row : kCommands)
    if (row.name == program) return row.replacement;
  return {};
}

}  // namespace zeroth::launcher
