// What saving and loading a checkpoint says to the caller.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace zeroth::engine {

// Texts of one's own that a checkpoint carries.
using ClientState = std::map<std::string, std::string>;

struct SavedCheckpoint {
  std::filesystem::path path;  // "DIR/step-8"
  // What went wrong behind the commit, which stands: an old one that could not be removed.
  std::vector<std::string> warnings = {};
};

enum class LoadedParts {
  kAll,
  kWithoutOptimizer,  // weights and counters; the optimizer's states stay as they are
  kWeights            // these alone
};

struct LoadedCheckpoint {
  std::filesystem::path path;
  ClientState client_state;
  std::vector<std::string> warnings = {};  // newer ones that are damaged, and were passed by
};

}  // namespace zeroth::engine
