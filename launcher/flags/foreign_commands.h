// DeepSpeed's commands, which users may type after `zeroth` by habit.
#pragma once

#include <string>
#include <string_view>

namespace zeroth::launcher {

// Returns the replacement for this DeepSpeed program, with or without ".py" and a path before it;
// empty: it is not one.
std::string_view replacement_for(std::string_view program);

}  // namespace zeroth::launcher
