#include "launcher/run/program_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "checkpoint/find.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kOutputKeys[] = {"output", "output_dir"};

std::string read_output_from_json(const std::string& path) {
  const auto file = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                       {.name = path, .limits = kConfigLimits});
  if (!file.is_object()) return "";
  for (const std::string_view name : kOutputKeys) {
    const auto found = file.find(name);
    if (found != file.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

std::string find_output(const std::vector<std::string>& command) {
  if (command.size() == 2 && command[1].ends_with(".json"))
    return read_output_from_json(command[1]);
  return find_argument(command, {"--output", "--output_dir", "--output-dir"});
}

bool has_any(const std::vector<std::string>& command, const std::vector<std::string_view>& flags) {
  return std::any_of(command.begin() + 1, command.end(), [&](const std::string& word) {
    return std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) != flags.end();
  });
}

}  // namespace

std::string find_argument(const std::vector<std::string>& command,
                          const std::vector<std::string_view>& flags) {
  std::string value;
  for (size_t i = 1; i < command.size(); ++i) {
    for (const std::string_view flag : flags) {
      if (command[i] == flag && i + 1 < command.size()) value = command[i + 1];
      if (command[i].starts_with(flag) && command[i].substr(flag.size()).starts_with('='))
        value = command[i].substr(flag.size() + 1);
    }
  }
  return value;
}

std::string newest_checkpoint(const std::vector<std::string>& command) try {
  const std::string output = find_output(command);
  if (output.empty()) return "";
  const checkpoint::CheckpointLocation place = checkpoint::locate(output);
  if (!place.file_system) return "";
  const auto found = checkpoint::list_checkpoints(*place.file_system);
  const checkpoint::CheckpointInfo* const newest = checkpoint::newest(found);
  if (newest == nullptr) return "";
  return fmt::format("{} {}", newest->name, checkpoint::to_string(newest->attempt));
} catch (const Error&) {
  return "";
}

PrintingCommand printing_command(const std::vector<std::string>& command) {
  const bool finetune = std::filesystem::path(command[0]).filename() == "finetune";
  const bool asks = has_any(command, {"--help", "-h", "--version"});
  PrintingCommand found;
  found.single_rank = asks && (finetune || command.size() == 2);
  const bool prints =
      has_any(command, {"--print-config"}) || (finetune && has_any(command, {"--inspect-samples"}));
  found.unprefixed_lines = finetune && prints;
  // Evaluation by finetune without --metrics only prints its loss.
  const bool evaluates =
      finetune && has_any(command, {"--eval-only"}) && !has_any(command, {"--metrics"});
  found.output_required = asks || prints || evaluates;
  return found;
}

}  // namespace zeroth::launcher
