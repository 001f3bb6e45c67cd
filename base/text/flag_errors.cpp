#include "base/text/flag_errors.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth {
namespace {

// Returns, for example, "--num_gpu: unknown flag; did you mean --num_gpus?".
std::string unknown_flag(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining();
  const auto flag_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  const auto unknown = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return word.starts_with("-") && app.get_option_no_throw(flag_of(word)) == nullptr;
  });
  if (unknown == words.end())
    return fmt::format("unexpected: {}", shortened(fmt::format("{}", fmt::join(words, " "))));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string name = flag_of(*unknown);
  const std::string_view near = nearest_name(name, {known.begin(), known.end()});
  return fmt::format("{}: unknown flag{}", shortened(name),
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

// Returns the option whose name appears first in `text`; of several at that position, the longest.
// If there is none, returns a hidden option that was given, because CLI11 does not name those.
// Returns null if there is none either.
const CLI::Option* find_meant_option(const CLI::App& app, std::string_view text) {
  const CLI::Option* found = nullptr;
  const CLI::Option* hidden = nullptr;
  size_t first = std::string_view::npos, longest = 0;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name.empty() && option->count() > 0) hidden = option;
    const size_t at = name.empty() ? std::string_view::npos : text.find(name);
    if (at > first || at == std::string_view::npos) continue;
    if (at == first && name.size() < longest) continue;
    found = option;
    first = at;
    longest = name.size();
  }
  return found != nullptr ? found : hidden;
}

}  // namespace

std::string flag_name(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? option.get_name() : "--" + names.front();
}

std::string value_count_error(const CLI::Option& option) {
  const auto given = static_cast<int>(option.results().size());
  const int min_values = option.get_items_expected_min(),
            max_values = option.get_items_expected_max();
  if (max_values > 0 && given > max_values) return flag_name(option) + " is given twice";
  if (given > 0 && given < min_values)
    return fmt::format("{} needs {} values", flag_name(option), min_values);
  return "";
}

std::vector<std::string> empty_value_errors(std::vector<std::string>& words,
                                            const std::vector<std::string_view>& may_be_empty) {
  const auto may_be = [&](std::string_view flag) {
    return std::find(may_be_empty.begin(), may_be_empty.end(), flag) != may_be_empty.end();
  };
  std::vector<std::string> errors, kept;
  std::string flag;          // the last flag seen
  bool takes_empty = false;  // the previous word was a flag that accepts an empty value
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const bool is_flag = word.size() > 1 && word.front() == '-';
    const bool ends_empty = is_flag && equals + 1 == word.size() && equals != std::string::npos;
    if (word.empty() && !takes_empty)
      errors.push_back(flag.empty() ? "an argument is empty" : shortened(flag) + " needs a value");
    if (is_flag) flag = word.substr(0, equals);
    if (ends_empty && !may_be(flag)) errors.push_back(shortened(flag) + " needs a value");
    takes_empty = is_flag && equals == std::string::npos && may_be(flag);
    kept.push_back(ends_empty ? flag : word);
    if (ends_empty) kept.emplace_back();
  }
  words = std::move(kept);
  return errors;
}

std::string flag_error(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unknown_flag(app);
  const CLI::Option* const option = find_meant_option(app, error.what());
  if (option == nullptr) return "the last flag needs a value";  // no other option can be wrong
  const std::string name = flag_name(*option);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return name + " is missing";
  const std::string count = value_count_error(*option);
  if (!count.empty()) return count;
  const std::string given = shortened(fmt::format("{}", fmt::join(option->results(), " ")));
  if (given.empty() || dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return name + " needs a value";
  if (option->get_items_expected_max() == 0)
    return fmt::format("{}={}: does not accept a value", name, given);
  const bool fraction = option->get_type_name() == "FLOAT";
  return fmt::format("{} {}: must be {}", name, given, fraction ? "a number" : "a whole number");
}

std::string parse_subcommand(CLI::App& app, std::vector<std::string> words) {
  const std::string& command = app.get_name();
  const auto refuse = [&](const std::string& message) {
    throw UsageError("{}: {} ({} --help)", command.substr(command.rfind(' ') + 1), message,
                     command);
  };
  if (const auto empty = empty_value_errors(words, {}); !empty.empty()) refuse(listed(empty));
  std::reverse(words.begin(), words.end());  // CLI11 expects the arguments in reverse order
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    refuse(flag_error(app, error));
  }
  return "";
}

}  // namespace zeroth
