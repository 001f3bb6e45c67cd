// `zeroth export DIR OUT` exports a model from a checkpoint. It starts nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// Runs export with the `arguments` that follow it. Returns the text to print. Throws UsageError if
// they are invalid, Error as export_model().
std::string export_command(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
