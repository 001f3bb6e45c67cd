#include "comm/groups/group.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::comm {

const std::vector<int>& Partition::part_of(int rank) const {
  const auto part = std::find_if(parts.begin(), parts.end(), [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  ZEROTH_CHECK(part != parts.end(), "rank {} is in no part of '{}'", rank, name);
  return *part;
}

}  // namespace zeroth::comm
