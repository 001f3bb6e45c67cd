// Flags of DeepSpeed's and torchrun's launchers that this one does not support: none is silently
// ignored.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace zeroth::launcher {

// ForeignFlags collects those found on a command line. It must outlive the parse.
struct ForeignFlags {
  std::vector<std::string> notes;     // of flags that have no effect here: why
  std::vector<std::string> refusals;  // of unsupported flags: the alternative
};

// Adds the flags; unsupported ones are hidden from the help.
void add_foreign_flags(CLI::App& app, ForeignFlags& found);

}  // namespace zeroth::launcher
