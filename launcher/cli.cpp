#include "launcher/cli.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>

#include "base/nearest.h"

namespace zeroth::launcher {
namespace {

class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: zeroth [flags] PROGRAM [arguments of PROGRAM]\n"
           "Example: zeroth --num_gpus 2 finetune --model DIR --data train.jsonl "
           "--deepspeed ds_config.json\n";
  }
};

void add_flags(CLI::App& app, LaunchOptions& options) {
  app.formatter(std::make_shared<Formatter>());
  app.set_help_flag("-h,--help", "Show this text");
  app.set_version_flag("--version", "zeroth " ZEROTH_VERSION, "Show the version");
  app.add_option("--num_gpus,--num_accelerators", options.num_ranks,
                 "Number of ranks (default: one per GPU; on the CPU one)");
  app.add_option("-i,--include", options.include,
                 "Use only these slots, as localhost:0,2 or localhost (a slot is a GPU id; on the "
                 "CPU a node has as many slots as cores)");
  app.add_option("-e,--exclude", options.exclude, "Use all slots but these, written as above");
  app.add_option("--master_addr", options.master_addr, "Address on which rank 0 is reached")
      ->capture_default_str();
  app.add_option("--master_port", options.master_port,
                 "Port on which rank 0 listens (default: a free one)");
  CLI::Option* bind = app.add_flag_callback(
      "--bind_cores_to_rank", [&] { options.bind_cores = true; },
      "Split the cores over the ranks and set OMP_NUM_THREADS (default on the CPU)");
  app.add_flag_callback(
         "--no_bind_cores_to_rank", [&] { options.bind_cores = false; },
         "Let ranks run on any core (default on GPUs)")
      ->excludes(bind);
  app.add_option("--bind_core_list", options.bind_core_list,
                 "The cores to split, as 0-3,8 (default: all that this process may use)");
  app.add_flag("--share-gpus,--share_gpus", options.share_gpus,
               "Allow more ranks than GPUs; their collectives go over Gloo");
  app.footer("DS_ACCELERATOR=cpu|cuda in the environment chooses the device.");
}

// Where PROGRAM stands: the first word that is neither a flag nor the value of one.
size_t program_position(const CLI::App& app, const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].size() > 1 && arguments[i][0] == '-') {
    if (arguments[i] == "--") return i + 1;
    const CLI::Option* option = app.get_option_no_throw(arguments[i]);
    const bool takes_next = option != nullptr && option->get_items_expected_min() > 0;
    i += takes_next ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

std::string flag_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

// Programs have --help and --version of their own.
bool is_ours_alone(const CLI::App& app, const std::string& flag) {
  if (!flag.starts_with("-")) return false;
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option != app.get_help_ptr() && option != app.get_version_ptr();
}

std::vector<std::string> misplaced_flag_warnings(const CLI::App& app,
                                                 const std::vector<std::string>& command) {
  std::vector<std::string> warnings;
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string name = flag_of(command[i]);
    if (!is_ours_alone(app, name)) continue;
    warnings.push_back(fmt::format(
        "{0} after {1} is handed to {1}; to reach zeroth, put it before {1}", name, command[0]));
  }
  return warnings;
}

// "--num_gpu: unknown flag; did you mean --num_gpus?"
std::string describe_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  const auto unknown = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return word.starts_with("-") && app.get_option_no_throw(flag_of(word)) == nullptr;
  });
  if (unknown == words.end()) return fmt::format("unexpected: {}", fmt::join(words, " "));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = flag_of(*unknown);
  const std::string_view near = nearest_name(name, {known.begin(), known.end()});
  return fmt::format("{}: unknown flag{}", name,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

void check(const LaunchOptions& options) {
  if (options.num_ranks && *options.num_ranks < 1)
    throw UsageError("--num_gpus {}: at least one rank is needed", *options.num_ranks);
  if (options.master_port && (*options.master_port < 1 || *options.master_port > 65535))
    throw UsageError("--master_port {}: a port lies between 1 and 65535", *options.master_port);
  if (options.master_addr.empty()) throw UsageError("--master_addr is empty");
  if (!options.bind_core_list.empty() && options.bind_cores == false)
    throw UsageError("--bind_core_list {} contradicts --no_bind_cores_to_rank",
                     options.bind_core_list);
  if (options.command.empty() || options.command[0].empty())
    throw UsageError(
        "no PROGRAM to start\nUsage: zeroth [flags] PROGRAM [arguments of PROGRAM]\n"
        "zeroth --help lists the flags");
  if (options.command[0].ends_with(".py"))
    throw UsageError(
        "{0} is a Python script, but zeroth starts programs and trains without Python: use "
        "'zeroth finetune ...' (see finetune --help), or name the interpreter yourself: "
        "'zeroth python3 {0} ...'",
        options.command[0]);
}

}  // namespace

LaunchOptions parse_command_line(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  CLI::App app("Starts one rank of PROGRAM per GPU, or per group of CPU cores, of this machine.",
               "zeroth");
  add_flags(app, options);
  const size_t program = program_position(app, arguments);
  const auto split = arguments.begin() + static_cast<std::ptrdiff_t>(program);
  std::vector<std::string> flags(arguments.begin(), split);
  std::reverse(flags.begin(), flags.end());  // the order that CLI11 takes
  try {
    app.parse(flags);
  } catch (const CLI::CallForHelp&) {
    options.answer = app.help();
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.answer = fmt::format("{}\n", version.what());
    return options;
  } catch (const CLI::ExtrasError&) {
    throw UsageError("{} (zeroth --help lists the flags)",
                     describe_unknown(app, {arguments.begin(), split}));
  } catch (const CLI::ParseError& error) {
    throw UsageError("{} (zeroth --help lists the flags)", error.what());
  }
  options.command.assign(split, arguments.end());
  check(options);
  options.warnings = misplaced_flag_warnings(app, options.command);
  return options;
}

}  // namespace zeroth::launcher
