#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <limits>

namespace zeroth {
namespace {

bool same(char left, char right) {
  return std::tolower(static_cast<unsigned char>(left)) ==
         std::tolower(static_cast<unsigned char>(right));
}

}  // namespace

size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::vector<size_t>> cost(left.size() + 1, std::vector<size_t>(right.size() + 1));
  for (size_t i = 0; i <= left.size(); ++i) {
    for (size_t j = 0; j <= right.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t substituted = cost[i - 1][j - 1] + (same(left[i - 1], right[j - 1]) ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substituted});
      if (i > 1 && j > 1 && same(left[i - 1], right[j - 2]) && same(left[i - 2], right[j - 1])) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost.back().back();
}

std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    const size_t near = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    if (distance <= near && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace zeroth
