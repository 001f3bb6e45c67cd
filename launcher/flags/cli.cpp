#include "launcher/flags/cli.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>

#include "base/text/diagnostics.h"
#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "launcher/flags/foreign_flags.h"

namespace zeroth::launcher {
namespace {

// DeepSpeed's log levels.
const std::map<std::string, Verbosity> kLevels = {{"debug", Verbosity::kDebug},
                                                  {"info", Verbosity::kNotes},
                                                  {"warning", Verbosity::kWarnings},
                                                  {"error", Verbosity::kErrors},
                                                  {"critical", Verbosity::kErrors}};

// Flags that programs often have themselves.
constexpr std::string_view kCommonNames[] = {"-h",      "--help",      "--version", "-q",
                                             "--quiet", "--log_level", "--timeout", "--grace"};

constexpr const char* kUsage =
    "Usage: zeroth [flags] PROGRAM [arguments of PROGRAM]\n"
    "       zeroth report\n"
    "       zeroth check-config FILE\n"
    "       zeroth checkpoint list|show|verify|prune DIR\n"
    "       zeroth export DIR OUT\n"
    "       zeroth inspect-data --model DIR --data FILE\n"
    "       zeroth tokenize --model DIR --data FILE --output PREFIX\n"
    "       zeroth merge BASE ADAPTER OUT\n";

// Indents the lines after the first one, so that no text within a message looks like another
// message.
std::string indent_lines(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) {
    text.replace(at, 1, "\n  ");
  }
  return text;
}

class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return std::string(kUsage) +
           "Example: zeroth --num_gpus 2 finetune --model DIR --data train.jsonl --deepspeed "
           "ds_config.json\nreport shows what this machine and this build support, check-config "
           "what a ds_config.json says,\ncheckpoint what a run has saved; export converts it to a "
           "model. inspect-data\nshows what is trained of a data file, tokenize writes its tokens, "
           "merge adds an adapter to\na model. They start nothing.\n";
  }
};

void add_ranks(CLI::App& app, LaunchOptions& options) {
  app.option_defaults()->group("Ranks");
  app.add_option("--num_gpus,--num_accelerators", options.num_ranks,
                 "Number of ranks (default: one per GPU; one on the CPU)")
      ->option_text("N");
  app.add_option(
         "-i,--include", options.include,
         "Use only these slots, such as localhost:0,2 or localhost (a slot is a GPU id; on the CPU "
         "a node has as many slots as cores), with a hostfile worker-0@worker-1:0,2")
      ->option_text("SLOTS");
  app.add_option("-e,--exclude", options.exclude, "Use all slots except these, in the same format")
      ->option_text("SLOTS");
  app.add_flag("--share-gpus,--share_gpus", options.share_gpus,
               "Allow more ranks than GPUs; they exchange data through host memory");
  app.add_flag("--oversubscribe", options.oversubscribe,
               "Allow more than four CPU ranks for each core; they run in turns");
}

void choose_binding(LaunchOptions& options, bool bind) {
  if (options.bind_cores == !bind)
    throw UsageError("--bind_cores_to_rank and --no_bind_cores_to_rank contradict each other");
  options.bind_cores = bind;
}

void add_cores(CLI::App& app, LaunchOptions& options) {
  app.option_defaults()->group("Cores");
  app.add_flag_callback(
      "--bind_cores_to_rank", [&] { choose_binding(options, true); },
      "Split the cores over the ranks, near to their GPUs, and set OMP_NUM_THREADS (default)");
  app.add_flag_callback(
      "--no_bind_cores_to_rank", [&] { choose_binding(options, false); },
      "Let ranks run on any core");
  app.add_option("--bind_core_list", options.bind_core_list,
                 "The cores to split, such as 0-3,8 (default: all that this process can use)")
      ->option_text("CORES");
}

void add_connection(CLI::App& app, LaunchOptions& options) {
  app.option_defaults()->group("Connection of the ranks");
  app.add_option(
         "--master_addr", options.master_addr,
         "Address of rank 0 (default: 127.0.0.1, on several machines that of rank 0's host)")
      ->option_text("ADDRESS");
  app.add_option("--master_port", options.master_port,
                 "Port on which rank 0 listens (default: a free one; with --no_ssh 29500)")
      ->option_text("PORT");
  app.add_option("--timeout", options.timeout_seconds,
                 "Timeout of a collective, after which the run ends (default: DEEPSPEED_TIMEOUT, "
                 "in minutes, or 600)")
      ->option_text("SECONDS");
}

Verbosity parse_verbosity(const std::string& level) {
  const auto found = kLevels.find(level);
  if (found != kLevels.end()) return found->second;
  throw UsageError("--log_level {}: must be one of debug, info, warning, error, critical",
                   shortened(level));
}

void add_end(CLI::App& app, LaunchOptions& options) {
  app.option_defaults()->group("Output and shutdown");
  app.add_option("--enable_each_rank_log", options.rank_log_directory,
                 "Also write the output of each rank to DIR/<time>_rank<N>.log")
      ->option_text("DIR");
  app.add_flag("--save_pid", options.save_pid,
               "Keep this process's id in /tmp/<id>.deepspeed while it runs");
  app.add_flag("--dry-run,--dry_run", options.dry_run,
               "Print the command lines that would be started, and start nothing");
  app.add_option("--grace", options.grace_seconds,
                 "Time for ranks to finish and save after SIGTERM, SIGINT or SIGHUP (default: "
                 "300); a second signal ends them at once")
      ->option_text("SECONDS");
  app.add_option_function<std::string>(
         "--log_level",
         [&](const std::string& level) { options.verbosity = parse_verbosity(level); },
         "Log level of the launcher itself: debug, info (default), warning, error or critical")
      ->option_text("LEVEL");
  app.add_flag_callback(
      "-q,--quiet", [&] { options.verbosity = Verbosity::kErrors; },
      "The same as --log_level error");
  app.set_help_flag("-h,--help", "Show this text");
  app.set_version_flag("--version", "zeroth " ZEROTH_VERSION, "Show the version");
}

void add_flags(CLI::App& app, LaunchOptions& options, ForeignFlags& foreign) {
  app.formatter(std::make_shared<Formatter>());
  add_ranks(app, options);
  add_host_flags(app, options.hosts);
  add_elastic_flags(app, options.elastic);
  add_cores(app, options);
  add_connection(app, options);
  add_end(app, options);
  app.option_defaults()->group("Flags of DeepSpeed's launcher that have no effect here");
  add_foreign_flags(app, foreign);
  app.footer(
      "Flags of DeepSpeed's launcher that are about Python or tuning are refused with a "
      "reason.\nDS_ACCELERATOR=cpu|cuda in the environment chooses the device. "
      "ZEROTH_CPU=plain|avx2|avx512|avx512_bf16|avx512_fp16 limits the CPU's kernels.");
}

// Returns the position of PROGRAM: the first word that is neither a flag nor a flag's value.
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

bool is_launcher_only_flag(const CLI::App& app, const std::string& flag) {
  if (!flag.starts_with("-")) return false;
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && !option->get_group().empty() &&
         std::ranges::find(kCommonNames, flag) == std::end(kCommonNames);
}

std::vector<std::string> misplaced_flag_warnings(const CLI::App& app,
                                                 const std::vector<std::string>& command) {
  std::vector<std::string> warnings;
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string name = command[i].substr(0, command[i].find('='));
    if (!is_launcher_only_flag(app, name)) continue;
    warnings.push_back(
        fmt::format("{0} after {1} is passed to {1}; to set it for zeroth, put it before {1}", name,
                    shortened(command[0])));
  }
  return warnings;
}

void check_values(LaunchOptions& options) {
  check_host_values(options.hosts);
  check_elastic_values(options.elastic);
  check_minimum(1, options.num_ranks, "--num_gpus", "at least one rank is needed");
  check_port(options.master_port, "--master_port");
  check_minimum(1, options.timeout_seconds, "--timeout", "at least one second is needed");
  check_minimum(0, options.grace_seconds, "--grace", "seconds cannot be negative");
  check_path_length(options.rank_log_directory, "--enable_each_rank_log");
  if (!options.bind_core_list.empty() && options.bind_cores == false)
    throw UsageError("--bind_core_list {} contradicts --no_bind_cores_to_rank",
                     shortened(options.bind_core_list));
}

void refuse_python(const std::string& program) {
  const std::string_view instead = replacement_for(program);
  if (!instead.empty())
    throw UsageError("{} is a command of DeepSpeed: {}", shortened(program), instead);
  throw UsageError(
      "{0} is a Python script, but zeroth starts programs and trains without Python: use "
      "'zeroth finetune ...' (see finetune --help), or name the interpreter yourself: "
      "'zeroth python3 {0} ...'",
      shortened(program));
}

void check_program(const LaunchOptions& options) {
  if (!options.elastic.join.empty()) {
    if (options.command.empty()) return;
    throw UsageError("--join {}: the joined run sets the program; leave out {}",
                     shortened(options.elastic.join), shortened(options.command[0]));
  }
  if (options.command.empty() || options.command[0].empty())
    throw UsageError("no PROGRAM to start\n  {}zeroth --help lists the flags",
                     indent_lines(kUsage));
  if (options.command[0].ends_with(".py")) refuse_python(options.command[0]);
}

// Parses `report`, which is not a program but a command of zeroth.
void parse_report(LaunchOptions& options, bool has_flags) {
  if (options.command.empty() || options.command[0] != "report") return;
  if (has_flags || options.command.size() > 1)
    throw UsageError(
        "report: 'zeroth report' accepts no flags and no arguments (a program of this name needs "
        "its path, as ./report)");
  options.report = true;
  options.command.clear();
}

// Removes one of the two empty lines between CLI11's groups.
std::string collapse_blank_lines(std::string text) {
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

}  // namespace

LaunchOptions parse_command_line(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  ForeignFlags foreign;
  CLI::App app(
      "Starts one rank of PROGRAM per GPU, or per group of CPU cores, of this machine or several.",
      "zeroth");
  add_flags(app, options, foreign);
  const size_t program = program_position(app, arguments);
  const auto split = arguments.begin() + static_cast<std::ptrdiff_t>(program);
  std::vector<std::string> flags(arguments.begin(), split);
  // DeepSpeed's defaults for these are empty: all slots, none.
  if (const auto empty = empty_value_errors(flags, {"--include", "--exclude", "-i", "-e"});
      !empty.empty())
    throw UsageError("{} (zeroth --help lists the flags)", listed(empty));
  std::reverse(flags.begin(), flags.end());  // CLI11 expects the reverse order
  try {
    app.parse(flags);
  } catch (const CLI::CallForHelp&) {
    options.answer = collapse_blank_lines(app.help());
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.answer = fmt::format("{}\n", version.what());
    return options;
  } catch (const CLI::ParseError& error) {
    throw UsageError("{} (zeroth --help lists the flags)", flag_error(app, error));
  }
  if (!foreign.refusals.empty()) throw UsageError("{}", listed(foreign.refusals));
  if (options.hosts.num_nodes && !(options.include + options.exclude).empty())
    throw UsageError("--num_nodes and --include or --exclude cannot be combined");
  options.notes = foreign.notes;
  options.command.assign(split, arguments.end());
  check_values(options);
  parse_report(options, program > 0);
  if (options.report) return options;
  check_program(options);
  options.warnings = misplaced_flag_warnings(app, options.command);
  return options;
}

}  // namespace zeroth::launcher
