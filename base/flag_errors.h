// What is wrong with a command line, in words of ours instead of those of CLI11, which reads it.
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

// "--steps", also where --help hides it; "FILE" for a positional argument.
std::string flag_name(const CLI::Option& option);

// "--steps is given twice", "--betas needs 2 values"; empty where the option has as many values as
// it takes, or none.
std::string value_count_error(const CLI::Option& option);

// The complaints about flags of a command line whose value is empty, as behind `--output ""` and
// `--output=`: "--output needs a value". A variable of a script that was not set looks like that.
// Emptiness has a meaning for the flags `may_be_empty`; their `--flag=` becomes two words in
// `words`, for CLI11 would take the word behind it for the value.
std::vector<std::string> empty_value_errors(std::vector<std::string>& words,
                                            const std::vector<std::string_view>& may_be_empty);

// Why `app` could not read its arguments: the flag, what was given to it and what it takes.
std::string flag_error(const CLI::App& app, const CLI::ParseError& error);

// Parses the arguments of the subcommand `app`, whose name is as "zeroth export". Returns its help
// where they ask for it, else "". Throws a UsageError where a value is empty or an argument is
// invalid.
std::string parse_subcommand(CLI::App& app, std::vector<std::string> words);

}  // namespace zeroth
