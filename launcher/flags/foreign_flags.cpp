#include "launcher/flags/foreign_flags.h"

#include <fmt/format.h>

namespace zeroth::launcher {
namespace {

struct Row {
  const char* names;
  const char* reason;
};

constexpr const char* kOneMachine =
    "several machines are not supported yet; leave it out, and choose slots of this machine by "
    "--num_gpus, --include or --exclude";
constexpr const char* kFixedRanks =
    "the number of ranks is fixed while a run lasts; leave it out, and choose it by --num_gpus";

// Without a value.
constexpr Row kWithoutEffect[] = {
    {"--no_python", "PROGRAM is always started as it is"},
    {"--no_local_rank", "no --local_rank is ever added to PROGRAM's arguments"},
    {"--no_ssh", "one machine needs no ssh"},
    {"--no_ssh_check", "one machine needs no ssh"},
};

// As above, but the only value that changes nothing is `value`.
struct ValueRow {
  const char* name;
  int value;
  const char* reason;
};

constexpr ValueRow kSingleValue[] = {
    {"--num_nodes", 1, "1 is the only number of machines yet"},
    {"--node_rank", 0, "0 is the only machine yet"},
};

constexpr Row kRefused[] = {
    {"--force_multi", kOneMachine},
    {"--module", "PROGRAM is started as it is; write 'zeroth python3 -m MODULE ...'"},
    {"--elastic_training", kFixedRanks},
};

constexpr Row kRefusedWithValue[] = {
    {"-H,--hostfile", kOneMachine},
    {"--launcher", kOneMachine},
    {"--launcher_args", kOneMachine},
    {"--ssh_port", kOneMachine},
    {"--venv_script", "it is for Python on other machines; activate what you need before zeroth"},
    {"--autotuning", "there is no tuner; leave it out"},
    {"--min_elastic_nodes", kFixedRanks},
    {"--max_elastic_nodes", kFixedRanks},
    {"--nproc_per_node,--nproc-per-node", "it is torchrun's; the flag here is --num_gpus"},
    {"--nnodes", "it is torchrun's; several machines are not supported yet"},
};

std::string first_long_name(const std::string& names) {
  const size_t start = names.find("--");
  return names.substr(start, names.find(',', start) - start);
}

void add_single_value(CLI::App& app, ForeignFlags& found, const ValueRow& row) {
  const auto take = [&found, row](const int& value) {
    if (value == row.value) {
      found.notes.push_back(fmt::format("{} {} changes nothing: {}", row.name, value, row.reason));
    } else {
      found.refusals.push_back(fmt::format("{} {}: {}", row.name, value, kOneMachine));
    }
  };
  app.add_option_function<int>(row.name, take, row.reason)->option_text("N");
}

}  // namespace

void add_foreign_flags(CLI::App& app, ForeignFlags& found) {
  for (const Row& row : kWithoutEffect) {
    const auto note = [&found, row] {
      found.notes.push_back(fmt::format("{} changes nothing: {}", row.names, row.reason));
    };
    app.add_flag_callback(row.names, note, row.reason);
  }
  for (const ValueRow& row : kSingleValue) add_single_value(app, found, row);
  const auto refuse = [&found](const Row& row) {
    found.refusals.push_back(fmt::format("{}: {}", first_long_name(row.names), row.reason));
  };
  for (const Row& row : kRefused)
    app.add_flag_callback(row.names, [refuse, row] { refuse(row); })->group("");
  for (const Row& row : kRefusedWithValue)
    app.add_option_function<std::string>(row.names,
                                         [refuse, row](const std::string&) { refuse(row); })
        ->group("");
}

}  // namespace zeroth::launcher
