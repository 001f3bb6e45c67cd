#include "base/scheduler_env.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

constexpr size_t kMaxEntries = 65'536;  // same as Slurm's own
constexpr size_t kMaxNameBytes = 255;

[[noreturn]] void refuse_list(std::string_view list, const std::string& why) {
  throw Error("'{}' is not a valid node list: {}", shortened(list), why);
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == ':';
}

// Splits a list at the commas outside of brackets.
std::vector<std::string_view> split_entries(std::string_view list) {
  std::vector<std::string_view> entries;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[' && ++depth > 1) refuse_list(list, "'[' within '['");
    if (c == ']' && --depth < 0) refuse_list(list, "']' without '['");
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    if (depth > 0) refuse_list(list, "'[' without ']'");
    entries.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return entries;
}

uint32_t parse_node_number(std::string_view list, std::string_view digits) {
  const auto number = parse_number<uint32_t>(digits);
  if (!number) refuse_list(list, fmt::format("'{}' is not a number", shortened(digits)));
  return *number;
}

// Expands "1-3,07" to 1, 2, 3, 07.
std::vector<std::string> expand_ranges(std::string_view list, std::string_view ranges) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split_entries(ranges)) {
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    const uint32_t first = parse_node_number(list, low), last = parse_node_number(list, high);
    if (last < first)
      refuse_list(list, fmt::format("'{}' is a descending range", shortened(range)));
    if (low.size() > kMaxNameBytes) refuse_list(list, "a number is too long");
    for (uint64_t number = first; number <= last; ++number) {
      if (numbers.size() == kMaxEntries)
        refuse_list(list, fmt::format("more than {} names", kMaxEntries));
      numbers.push_back(fmt::format("{:0{}}", number, low.size()));
    }
  }
  return numbers;
}

std::vector<std::string> expand_entry(std::string_view list, std::string_view entry) {
  std::vector<std::string> names = {""};
  for (size_t i = 0; i < entry.size();) {
    std::vector<std::string> tails;
    if (entry[i] == '[') {
      const size_t end = entry.find(']', i);
      tails = expand_ranges(list, entry.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      size_t end = i;
      while (end < entry.size() && is_name_character(entry[end])) ++end;
      if (end == i)
        refuse_list(list,
                    fmt::format("invalid character '{}' in a name", printable(entry.substr(i, 1))));
      tails.emplace_back(entry.substr(i, end - i));
      i = end;
    }
    if (names.size() * tails.size() > kMaxEntries)
      refuse_list(list, fmt::format("more than {} names", kMaxEntries));
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& tail : tails) longer.push_back(name + tail);
    }
    names = std::move(longer);
    if (names.front().size() > kMaxNameBytes) refuse_list(list, "a name is too long");
  }
  if (names.front().empty()) refuse_list(list, "a name is empty");
  return names;
}

constexpr SchedulerVariables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                          "LOCAL_SIZE"};
constexpr const char* kLocalSizeOfTorchrun = "LOCAL_WORLD_SIZE";  // `zeroth` sets LOCAL_SIZE
constexpr SchedulerVariables kKubeflow = {"Kubeflow", "PET_NODE_RANK", "PET_NNODES"};

// Returns read(text of the variable); puts the variable's name before the message of its Error.
template <typename Read>
auto read_list(const EnvReader& reader, const char* name, const Read& read) {
  try {
    return read(reader.text(name).value_or(""));
  } catch (const Error& error) {
    throw Error("environment variable {}: {}", name, error.what());
  }
}

bool is_slurm_rank(const EnvReader& reader) {
  return reader.has(kSlurm.rank) && reader.has(kSlurm.size) && is_srun_step(reader);
}

std::optional<int> tasks_on_node(const EnvReader& reader) {
  if (!reader.has(kSlurm.local_size)) return std::nullopt;
  const auto counts = read_list(reader, kSlurm.local_size, expand_counts);
  const auto node = static_cast<size_t>(reader.number("SLURM_NODEID", 0).value_or(0));
  if (node >= counts.size() || counts[node] < 1)
    throw Error("environment variable {} has no tasks for SLURM_NODEID={}",
                reader.quote(kSlurm.local_size), node);
  return counts[node];
}

// Returns "RANK=0, WORLD_SIZE=2", for example.
std::string rank_variables(const EnvReader& reader, const SchedulerVariables& names) {
  const std::string rank = reader.has(names.rank) ? reader.quote(names.rank) : "";
  const std::string size = reader.has(names.size) ? reader.quote(names.size) : "";
  return rank + (rank.empty() || size.empty() ? "" : ", ") + size;
}

void check_consistent(const EnvReader& reader, const SchedulerVariables& names,
                      const SchedulerEnv& env) {
  check_rank_below_size(reader, names.rank, env.rank, names.size, env.world_size);
  if (env.local_size && *env.local_size > env.world_size)
    throw Error("environment variable {} is more than {}", reader.quote(names.local_size),
                reader.quote(names.size));
  if (env.local_rank && env.local_size && *env.local_rank >= *env.local_size)
    throw Error("environment variable {} must be below {}", reader.quote(names.local_rank),
                reader.quote(names.local_size));
}

SchedulerEnv from_variables(const EnvReader& reader, const SchedulerVariables& names) {
  SchedulerEnv env;
  env.launcher = names.launcher;
  env.rank_variables = rank_variables(reader, names);
  env.rank = reader.number(names.rank, 0).value_or(0);
  env.world_size = reader.number(names.size, 1).value_or(1);
  if (names.launcher == kKubeflow.launcher) {
    env.local_rank = 0;
    env.local_size = 1;
    env.master_addr = reader.text("PET_MASTER_ADDR");
    env.master_port = reader.number("PET_MASTER_PORT", 1, kMaxPort);
  } else {
    env.local_rank = reader.number(names.local_rank, 0);
    env.local_size = names.launcher == kSlurm.launcher ? tasks_on_node(reader)
                                                       : reader.number(names.local_size, 1);
  }
  check_consistent(reader, names, env);
  return env;
}

// A pod of Kubeflow's torch runtime knows its node's index among nodes, which is a rank only if
// each node has one rank.
void check_pod_is_rank(const EnvReader& reader) {
  const auto ask_for_launcher = [&](const char* name) {
    throw Error(
        "environment variable {} needs a launcher of ranks: start `zeroth finetune ...` (or "
        "torchrun) as the pod's command, which reads it",
        reader.quote(name));
  };
  const auto nodes = reader.text(kKubeflow.size);
  if (const auto ranks = reader.text("PET_NPROC_PER_NODE"); ranks && *ranks != "1")
    ask_for_launcher("PET_NPROC_PER_NODE");
  if (nodes && nodes->find(':') != std::string::npos) ask_for_launcher(kKubeflow.size);
  if (nodes && *nodes != "1" && !reader.has(kKubeflow.rank) && reader.has("PET_RDZV_ENDPOINT"))
    ask_for_launcher("PET_RDZV_ENDPOINT");
}

SchedulerEnv detect_scheduler(const EnvReader& reader) {
  for (const SchedulerVariables& names : {kTorchrun, kOpenMpi, kPals, kHydra}) {
    // PALS and other MPIs share the first two names.
    if (names.launcher == kPals.launcher && !reader.has(names.local_rank)) continue;
    if (!reader.has(names.rank)) continue;
    SchedulerEnv env = from_variables(reader, names);
    if (env.local_size) return env;
    if (names.launcher == kTorchrun.launcher) {
      env.local_size = reader.number(kLocalSizeOfTorchrun, 1);
    } else if (is_slurm_rank(reader)) {  // `srun --mpi=pmi2` tells PMI less than Slurm knows
      const SchedulerEnv step = from_variables(reader, kSlurm);
      if (step.rank == env.rank && step.world_size == env.world_size) return step;
    }
    return env;
  }
  if (is_slurm_rank(reader)) return from_variables(reader, kSlurm);
  if (reader.has(kKubeflow.size) || reader.has(kKubeflow.rank)) {
    check_pod_is_rank(reader);
    return from_variables(reader, kKubeflow);
  }
  SchedulerEnv none;
  none.local_rank = reader.number(kTorchrun.local_rank, 0);
  return none;
}

// Checks WORLD_SIZE set by a person beside the launcher's variables, as many scripts for Slurm do.
void check_world_size(const EnvReader& reader, const SchedulerEnv& env) {
  const auto world_size = reader.number(kTorchrun.size, 1);
  if (!world_size || reader.has(kTorchrun.rank) || *world_size == env.world_size) return;
  if (env.launcher.empty())
    throw Error("environment variable WORLD_SIZE={} is set, but RANK is not", *world_size);
  throw Error("environment variable WORLD_SIZE={} is set without RANK, but {} has {}", *world_size,
              env.launcher, pluralize(env.world_size, "rank"));
}

void set_master(const EnvReader& reader, SchedulerEnv& env) {
  if (reader.has("MASTER_ADDR")) env.master_addr = reader.text("MASTER_ADDR");
  if (reader.has("MASTER_PORT")) env.master_port = reader.number("MASTER_PORT", 1, kMaxPort);
  const bool is_slurm = env.launcher == kSlurm.launcher;
  const bool is_single_node = env.local_size ? *env.local_size == env.world_size : !is_slurm;
  if (is_slurm || !is_single_node) {
    if (!env.master_addr) env.master_addr = slurm_master_addr(reader, is_slurm);
    const auto port = slurm_master_port(reader, is_slurm);
    if (!env.master_port) env.master_port = port;
  }
  if (is_single_node && !reader.has("MASTER_ADDR")) env.master_addr.reset();
  if (!is_single_node && !env.master_addr && env.launcher != kTorchrun.launcher)
    throw Error(
        "{} has started {} ranks on several machines: environment variable MASTER_ADDR, the "
        "address of rank 0's machine, must be set for all of them",
        env.launcher, env.world_size);
}

// Returns whether the variables of the step, not those of its job, name the nodes.
bool has_step_nodes(const EnvReader& reader, bool is_step) {
  return is_step && reader.has("SLURM_STEP_NODELIST");
}

}  // namespace

SchedulerEnv read_scheduler_env(const EnvLookup& lookup) {
  const EnvReader reader(lookup);
  SchedulerEnv env = detect_scheduler(reader);
  check_world_size(reader, env);
  set_master(reader, env);
  return env;
}

bool is_srun_step(const EnvReader& reader) {
  const auto step = reader.number<uint32_t>("SLURM_STEP_ID", 0);
  return step && *step < 0xfffffff0;
}

std::optional<std::string> slurm_master_addr(const EnvReader& reader, bool is_step) {
  const char* const list =
      has_step_nodes(reader, is_step) ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (!reader.has(list)) return std::nullopt;
  return read_list(reader, list, expand_node_list).front();
}

std::optional<int> slurm_master_port(const EnvReader& reader, bool is_step) {
  const auto job = reader.number<uint32_t>("SLURM_JOB_ID", 0);
  if (!job) return std::nullopt;
  const int64_t step =
      has_step_nodes(reader, is_step) ? reader.number<uint32_t>("SLURM_STEP_ID", 0).value_or(0) : 0;
  return static_cast<int>(15'000 + (*job + step) % 10'000);
}

void check_rank_below_size(const EnvReader& reader, const char* rank_name, int rank,
                           const char* size_name, int size) {
  if (rank < size) return;
  throw Error("environment variable {} must be below {}", reader.quote(rank_name),
              reader.has(size_name) ? reader.quote(size_name)
                                    : fmt::format("{}, which is not set", size_name));
}

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> all;
  for (const std::string_view entry : split_entries(list)) {
    std::vector<std::string> names = expand_entry(list, entry);
    if (all.size() + names.size() > kMaxEntries)
      refuse_list(list, fmt::format("more than {} names", kMaxEntries));
    for (std::string& name : names) all.push_back(std::move(name));
  }
  return all;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (std::string_view entry : split_entries(list)) {
    int times = 1;
    if (const size_t times_at = entry.find("(x");
        times_at != std::string_view::npos && entry.back() == ')') {
      const auto digits = entry.substr(times_at + 2, entry.size() - times_at - 3);
      times = parse_number<int>(digits).value_or(0);
      entry = entry.substr(0, times_at);
    }
    const int count = parse_number<int>(entry).value_or(-1);
    if (count < 0 || times < 1 || counts.size() + static_cast<size_t>(times) > kMaxEntries)
      throw Error("'{}' is not a valid list of counts, such as 2(x3),1", shortened(list));
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

}  // namespace zeroth
