// `zeroth export DIR OUT`: a model out of a checkpoint. Starts nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// `arguments` behind export. Returns what is to be printed. Throws UsageError for those it cannot
// understand, and Error as export_model().
std::string export_command(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
