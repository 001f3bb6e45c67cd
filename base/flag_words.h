// What is wrong with a command line, in words of ours instead of those of CLI11, which reads it.
#pragma once

#include <string>

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
std::string miscounted(const CLI::Option& option);

// Why `app` could not read its arguments: the flag, what was given to it and what it takes.
std::string flag_complaint(const CLI::App& app, const CLI::ParseError& error);

}  // namespace zeroth
