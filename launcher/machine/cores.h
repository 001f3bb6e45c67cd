// CPU cores: lists of them, and their division over ranks.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// "0-3,8" -> 0 1 2 3 8. Throws UsageError on bad syntax, a repeated core and a core outside
// `allowed`. Pure.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed);

// One part for each list of `near`, whose cores the part had best run on (empty: none is better
// than another). Sizes differ by at most one. Parts of one list share its cores; what they then
// lack comes from the rest. Without lists these are contiguous ranges of `cores`. With fewer cores
// than parts each part gets all of them. Pure.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores,
                                          const std::vector<std::vector<int>>& near);

}  // namespace zeroth::launcher
