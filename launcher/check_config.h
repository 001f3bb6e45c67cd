// `zeroth check-config FILE [--ranks N] [--strict] [--accept-uncompressed]`: what a ds_config.json
// says, key by key. Starts nothing.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct ConfigCheck {
  std::string text;  // to be printed
  int status = 0;    // 2: a run would refuse the file
};

// `arguments` behind check-config. Throws UsageError for those it cannot understand, and for a file
// that cannot be read or is no JSON.
ConfigCheck check_config(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
