// `zeroth check-config FILE [--ranks N] [--strict] [--accept-uncompressed]` explains a
// ds_config.json key by key. It starts nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct ConfigCheck {
  std::string text;  // to be printed
  int status = 0;    // 2: a run would reject the file
};

// Runs check-config with the `arguments` that follow it. Throws UsageError if they are invalid, or
// if the file cannot be read or is not JSON.
ConfigCheck check_config(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
