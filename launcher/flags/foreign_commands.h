// Commands of DeepSpeed, which people type by habit behind `zeroth`.
#pragma once

#include <string>
#include <string_view>

namespace zeroth::launcher {

// What to type instead of this program of DeepSpeed, with or without ".py" and a path before it;
// empty: it is none.
std::string_view replacement_for(std::string_view program);

}  // namespace zeroth::launcher
