// Environment variables that are set and empty.
#pragma once

#include <functional>
#include <string_view>

namespace zeroth {

// Throws a UsageError that names them where variables that Zeroth reads are set and empty: a
// variable of a script that was not set looks like that, and counting as not set it would change
// the run without a word. Not those whose emptiness has a meaning (CUDA_VISIBLE_DEVICES: no GPU).
// `lookup` is getenv, or stands for it.
void reject_empty_variables(const std::function<const char*(const char* name)>& lookup);

// Returns whether `name` is a variable that reject_empty_variables() looks at.
bool must_not_be_empty(std::string_view name);

}  // namespace zeroth
