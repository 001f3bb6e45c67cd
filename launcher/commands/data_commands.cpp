#include <algorithm>

#include "base/error.h"
#include "launcher/commands/commands.h"

namespace zeroth::launcher {
namespace {

constexpr char kShownSamples[] = "3";
constexpr char kAllSamples[] = "100000000";

bool asks_for_help(const std::vector<std::string>& arguments) {
  return arguments.empty() || std::ranges::count(arguments, "--help") > 0 ||
         std::ranges::count(arguments, "-h") > 0;
}

}  // namespace

std::vector<std::string> inspect_data_arguments(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) return {};
  constexpr std::string_view kCount = "--count";
  std::vector<std::string> result;
  std::string count;
  bool json = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == kCount && i + 1 < arguments.size()) {
      count = arguments[++i];
    } else if (argument.starts_with("--count=")) {
      count = argument.substr(kCount.size() + 1);
    } else {
      result.push_back(argument);
    }
  }
  if (count.empty()) count = json ? kAllSamples : kShownSamples;
  result.insert(result.end(), {"--inspect-samples", count});
  if (json) result.insert(result.end(), {"--inspect-format", "json"});
  return result;
}

std::vector<std::string> tokenize_arguments(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) return {};
  std::vector<std::string> result = arguments;
  result.emplace_back("--tokenize");
  return result;
}

std::vector<std::string> merge_arguments(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) return {};
  const auto is_flag = [](const std::string& word) { return word.starts_with("-"); };
  if (arguments.size() < 3 || std::any_of(arguments.begin(), arguments.begin() + 3, is_flag)) {
    throw UsageError(
        "merge: BASE, ADAPTER and OUT are needed: the folders of a model, of its adapter and of "
        "the result");
  }
  std::vector<std::string> result = {"--merge",    "--model",  arguments[0], "--adapter",
                                     arguments[1], "--output", arguments[2]};
  result.insert(result.end(), arguments.begin() + 3, arguments.end());
  return result;
}

std::string data_command_help() {
  return "Usage: zeroth inspect-data --model DIR --data FILE [--count N] [--json] [FLAGS]\n"
         "         prints how the data is read, how long its samples are, and the first N (3) "
         "token\n"
         "         by token, trained or not. --json: a line per sample, all by default, with\n"
         "         \"text\", \"ids\", \"trained\" (ranges [first, end) of the ids) and \"source\"\n"
         "       zeroth tokenize --model DIR --data FILE --output PREFIX [FLAGS]\n"
         "         writes PREFIX.bin and PREFIX.idx, as Megatron reads them, and PREFIX.mask with "
         "a\n"
         "         bit per token that is trained; --data PREFIX.bin reads all of them\n"
         "       zeroth merge BASE ADAPTER OUT [--save-dtype fp32|bf16|fp16] [--overwrite]\n"
         "         writes the model BASE with the adapter ADAPTER added to its weights to OUT\n"
         "FLAGS are those of `finetune --help` about data: --chat-template, --train-on, ...\n";
}

}  // namespace zeroth::launcher
