// What a folder holds.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace zeroth::trainer {

inline std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace zeroth::trainer
