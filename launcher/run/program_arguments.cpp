#include "launcher/run/program_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/units.h"
#include "checkpoint/find.h"
#include "configs/inspect.h"

namespace zeroth::launcher {
namespace {

// Returns the value of the flag in a file of flags, whose keys are flags without "--".
std::string find_in_json(const std::string& path, const std::vector<std::string_view>& flags) try {
  const auto file = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                       {.name = path, .limits = kConfigLimits});
  if (!file.is_object()) return "";
  std::string value;
  for (const auto& [key, entry] : file.items()) {
    const bool found = std::find(flags.begin(), flags.end(), "--" + key) != flags.end();
    if (found && !entry.is_null())
      value = entry.is_string() ? entry.get<std::string>() : entry.dump();
  }
  return value;
} catch (const Error&) {
  return "";
}

std::optional<int64_t> find_count(const std::vector<std::string>& command,
                                  const std::vector<std::string_view>& flags) {
  constexpr int64_t kMaxCount = 1'000'000;  // as of the keys
  const auto count = parse_number<int64_t>(find_argument(command, flags));
  return count && *count > 0 && *count <= kMaxCount ? count : std::nullopt;
}

bool is_finetune(const std::vector<std::string>& command) {
  return std::filesystem::path(command[0]).filename() == "finetune";
}

bool has_any(const std::vector<std::string>& command, const std::vector<std::string_view>& flags) {
  return std::any_of(command.begin() + 1, command.end(), [&](const std::string& word) {
    return std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) != flags.end();
  });
}

}  // namespace

std::string find_argument(const std::vector<std::string>& command,
                          const std::vector<std::string_view>& flags) {
  const bool is_file = command.size() == 2 && command[1].ends_with(".json");
  if (is_file && !command[1].starts_with('-')) return find_in_json(command[1], flags);
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

ModelParallelSize model_parallel_size(const std::vector<std::string>& command) try {
  if (command.empty() || !is_finetune(command)) return {};
  configs::FlagValues flags;
  flags.pipeline_parallel = find_count(command, {"--pipeline-parallel", "--pipeline_parallel"});
  flags.tensor_parallel = find_count(command, {"--tensor-parallel", "--tensor_parallel"});
  const std::string file =
      find_argument(command, {"--deepspeed", "--deepspeed_config", "--deepspeed-config"});
  const configs::Config found = configs::resolve_model_parallel(
      file.empty() ? configs::Document() : configs::load(file), flags);
  return {found.pipeline.stages, found.tensor_parallel.size};
} catch (const Error&) {
  return {};
}

std::string newest_checkpoint(const std::vector<std::string>& command) try {
  const std::string output = find_argument(command, {"--output", "--output_dir", "--output-dir"});
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
  const bool finetune = is_finetune(command);
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
