#include "launcher/run/printing_command.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace zeroth::launcher {
namespace {

bool has_any(const std::vector<std::string>& command, const std::vector<std::string_view>& flags) {
  return std::any_of(command.begin() + 1, command.end(), [&](const std::string& word) {
    return std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) != flags.end();
  });
}

}  // namespace

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
