// What the tests of this folder share: fixtures, a folder that goes away, and the message of an
// Error.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/tokenizer.h"

namespace zeroth::data {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(ZEROTH_SOURCE_DIR) / "tests/data/fixtures" / name;
}

inline nlohmann::json read_fixture(const std::string& name) {
  std::ifstream file(fixture(name));
  REQUIRE(file);
  return nlohmann::json::parse(file);
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "zeroth_data_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

  template <typename T>
  std::filesystem::path write_numbers(const std::string& name, const std::vector<T>& n) const {
    return write(name, {reinterpret_cast<const char*>(n.data()), n.size() * sizeof(T)});
  }

 private:
  std::filesystem::path path_;
};

// The message of the Error that the call must throw.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  FAIL("no Error was thrown");
  return "";
}

inline void check_contains(const std::string& text, std::string_view part) {
  INFO(text);
  INFO(part);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace zeroth::data
