#include "trainer/flags/argument_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"

namespace zeroth::trainer {
namespace {

using Json = nlohmann::ordered_json;

// Returns the value as it is typed after a flag.
std::string argument_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> read_flags(const std::string& path) {
  DuplicateKeys duplicate_keys;
  const Json file = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                       {.name = path, .limits = kConfigLimits}, &duplicate_keys);
  if (duplicate_keys.count > 0)
    throw Error("{}: duplicate key {}: keep one", path, duplicate_keys.paths.front());
  if (!file.is_object())
    throw Error("{}: expected an object of flags, found {}", path, quoted(file));
  std::vector<std::string> flags;
  for (const auto& [key, value] : file.items()) {
    if (value.is_null()) continue;
    if (!value.is_array()) {
      flags.push_back(fmt::format("--{}={}", key, argument_text(value)));
      continue;
    }
    if (value.empty()) continue;
    flags.push_back("--" + key);
    for (const Json& entry : value) flags.push_back(argument_text(entry));
  }
  return flags;
}

}  // namespace

std::vector<std::string> expand_argument_file(std::vector<std::string> arguments) {
  const auto is_rank = [](const std::string& argument) {
    return argument.starts_with("--local_rank=") || argument.starts_with("--local-rank=");
  };
  std::vector<std::string> others;
  std::remove_copy_if(arguments.begin(), arguments.end(), std::back_inserter(others), is_rank);
  if (others.size() != 1 || others[0].starts_with("-")) return arguments;
  if (others[0].ends_with(".yaml") || others[0].ends_with(".yml")) {
    throw Error("{}: YAML is not supported: write the flags to a .json file", others[0]);
  }
  return others[0].ends_with(".json") ? read_flags(others[0]) : arguments;
}

}  // namespace zeroth::trainer
