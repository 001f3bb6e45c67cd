// Error messages about a command line, which replace those of CLI11, the parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace zeroth {

// Returns "--steps", also if --help hides the flag, or "FILE" for a positional argument.
std::string flag_name(const CLI::Option& option);

// Returns an error such as "--steps is given twice" or "--betas needs 2 values". Returns an empty
// text if the option has as many values as it accepts, or none.
std::string value_count_error(const CLI::Option& option);

// Returns errors such as "--output needs a value" for flags with an empty value (`--output ""`,
// `--output=`), which a script that expands an unset variable passes. The flags `may_be_empty`
// accept an empty value. Splits their `--flag=` into two entries of `words`, because CLI11 would
// consume the next word as the value.
std::vector<std::string> empty_value_errors(std::vector<std::string>& words,
                                            const std::vector<std::string_view>& may_be_empty);

// Returns why `app` cannot parse its arguments: the flag, its value and what it accepts.
std::string flag_error(const CLI::App& app, const CLI::ParseError& error);

// Parses the arguments of the subcommand `app`, whose name is, for example, "zeroth export".
// Returns its help if the arguments ask for it, otherwise "". Throws a UsageError if a value is
// empty or an argument is invalid.
std::string parse_subcommand(CLI::App& app, std::vector<std::string> words);

}  // namespace zeroth
