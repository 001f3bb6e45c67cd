#include "trainer/step_directory.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace zeroth::trainer {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kCheckpoint = "checkpoint-";

}  // namespace

bool is_step_directory(const std::string& name) {
  for (const std::string_view prefix : {kStep, kCheckpoint}) {
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    return std::all_of(name.begin() + static_cast<ptrdiff_t>(prefix.size()), name.end(),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
  }
  return false;
}

}  // namespace zeroth::trainer
