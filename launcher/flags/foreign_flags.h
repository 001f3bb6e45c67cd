// Flags and commands of DeepSpeed and torchrun that this launcher does not support: none is
// silently ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace zeroth::launcher {

// ForeignFlags collects those found on a command line. It must outlive the parse.
struct ForeignFlags {
  std::vector<std::string> notes;     // of flags that have no effect here: why
  std::vector<std::string> refusals;  // of unsupported flags: the alternative
};

// Adds the flags; unsupported ones are hidden from the help.
void add_foreign_flags(CLI::App& app, ForeignFlags& found);

// Returns the replacement for this DeepSpeed program, with or without ".py" and a path before it;
// empty: it is not one.
std::string_view replacement_for(std::string_view program);

}  // namespace zeroth::launcher
