#include "base/text/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "base/text/printable.h"

namespace zeroth {
namespace {

bool equal_ignoring_case(char left, char right) {
  return std::tolower(static_cast<unsigned char>(left)) ==
         std::tolower(static_cast<unsigned char>(right));
}

}  // namespace

std::string listed(const std::vector<std::string>& errors, size_t max_shown) {
  const size_t shown = std::min(errors.size(), max_shown);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : "\n  ") + printable(errors[i]);
  }
  if (shown < errors.size()) {
    text += fmt::format("\n  and {} more", errors.size() - shown);
  }
  return text;
}

size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> two_above, above, cost(right.size() + 1);
  for (size_t i = 0; i <= left.size(); ++i) {
    two_above = std::exchange(above, cost);
    for (size_t j = 0; j <= right.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[j] = i + j;
        continue;
      }
      const size_t substituted =
          above[j - 1] + (equal_ignoring_case(left[i - 1], right[j - 1]) ? 0 : 1);
      cost[j] = std::min({above[j] + 1, cost[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && equal_ignoring_case(left[i - 1], right[j - 2]) &&
          equal_ignoring_case(left[i - 2], right[j - 1])) {
        cost[j] = std::min(cost[j], two_above[j - 2] + 1);
      }
    }
  }
  return cost.back();
}

std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string_view candidate : candidates) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    const size_t max_distance = std::max<size_t>(1, longer / 3);
    if (longer - shorter > max_distance) continue;  // needs at least that many insertions
    const size_t distance = edit_distance(name, candidate);
    if (distance <= max_distance && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace zeroth
