// Flags of DeepSpeed's and torchrun's launchers that do not fit this one: none is ignored in
// silence.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace zeroth::launcher {

// What came of them on a command line. Must outlive the parse.
struct ForeignFlags {
  std::vector<std::string> notes;     // of flags that change nothing here: why
  std::vector<std::string> refusals;  // of flags that would: what to do instead
};

// Adds them, hidden where they are refused.
void add_foreign_flags(CLI::App& app, ForeignFlags& found);

}  // namespace zeroth::launcher
