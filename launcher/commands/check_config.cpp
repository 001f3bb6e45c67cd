#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "configs/inspect.h"
#include "launcher/commands/commands.h"

namespace zeroth::launcher {
namespace {

void add_keys(const std::string& title, const std::vector<configs::KeyReport>& keys,
              std::string& text) {
  constexpr size_t kMaxValueLength = 40;  // characters of a value to show
  size_t path = 0, value = 0;
  for (const configs::KeyReport& key : keys) {
    path = std::max(path, shortened(key.path).size());
    value = std::max(value, shortened(key.value, kMaxValueLength).size());
  }
  text += fmt::format("{}\n", title);
  for (const configs::KeyReport& key : keys) {
    std::string line = fmt::format("  {:{}}  {:9}  {:{}}  {}", shortened(key.path), path, key.state,
                                   shortened(key.value, kMaxValueLength), value, key.origin);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

void add_lines(const std::string& title, const std::vector<std::string>& lines, size_t max_lines,
               std::string& text) {
  if (!lines.empty()) text += fmt::format("{}\n  {}\n", title, listed(lines, max_lines));
}

}  // namespace

CommandResult check_config(const std::vector<std::string>& arguments) {
  std::string file;
  std::optional<int64_t> ranks;
  configs::FlagValues flags;
  CLI::App app("Shows the state and the value of every key of a ds_config.json. Starts nothing.",
               "zeroth check-config");
  app.add_option("FILE", file, "The file, or base64 of it")->required();
  app.add_option("--ranks", ranks,
                 "Number of ranks to check the batch sizes for (default: one that fits them)")
      ->option_text("N");
  app.add_flag("--strict", flags.strict, "Treat names that DeepSpeed would ignore as errors");
  app.add_flag("--accept-uncompressed", flags.accept_uncompressed,
               "Allow 1-bit optimizers to run without compression, as in finetune");
  if (const std::string help = parse_subcommand(app, arguments); !help.empty())
    return {help + "\nExit code: 0, or 2 if a run would refuse the file.\n"};
  if (ranks && *ranks < 1)
    throw UsageError("check-config: --ranks {}: at least one rank is needed", *ranks);
  const configs::Inspection found =
      rethrow_as_usage_error([&] { return configs::inspect(configs::load(file), ranks, flags); });
  CommandResult check;
  add_keys("In the file:", found.given, check.text);
  add_keys("Not in the file:", found.by_default, check.text);
  constexpr size_t kMaxNotes = 100;
  add_lines("Notes:", found.notes, kMaxNotes, check.text);
  add_lines("Refused:", found.errors, kMaxErrors, check.text);
  check.text += found.errors.empty() ? "The file is accepted.\n"
                                     : fmt::format("The file is refused: {}.\n",
                                                   pluralize(std::ssize(found.errors), "error"));
  if (!found.errors.empty()) check.status = 2;
  return check;
}

}  // namespace zeroth::launcher
