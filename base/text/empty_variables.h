// A check for environment variables that are set but empty.
#pragma once

#include <functional>
#include <string_view>

namespace zeroth {

// Throws a UsageError that names all variables that Zeroth reads and that are set but empty. A
// script that expands an unset variable sets them like that, and treating them as unset would
// silently change the run. Variables whose emptiness has a meaning are exempt
// (CUDA_VISIBLE_DEVICES: no GPU). `lookup` is getenv or a substitute for it.
void reject_empty_variables(const std::function<const char*(const char* name)>& lookup);

// Returns whether reject_empty_variables() checks the variable `name`.
bool must_not_be_empty(std::string_view name);

}  // namespace zeroth
