#include "base/complaints.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace zeroth {

std::string listed(const std::vector<std::string>& complaints, size_t most) {
  const size_t shown = std::min(complaints.size(), most);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : "\n  ") + printable(complaints[i]);
  }
  if (shown < complaints.size()) {
    text += fmt::format("\n  and {} more", complaints.size() - shown);
  }
  return text;
}

}  // namespace zeroth
