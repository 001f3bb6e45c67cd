// What the tests of this folder share: fixtures, and the message of an Error.
#pragma once

#include <doctest/doctest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/temp_folder.h"

namespace zeroth::data {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(ZEROTH_SOURCE_DIR) / "tests/data/fixtures" / name;
}

inline nlohmann::json read_fixture(const std::string& name) {
  std::ifstream file(fixture(name));
  REQUIRE(file);
  return nlohmann::json::parse(file);
}

using zeroth::TempFolder;

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

// Of the processor, which others may share.
template <typename Call>
double seconds_of(const Call& call) {
  const std::clock_t start = std::clock();
  call();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

inline void check_contains(const std::string& text, std::string_view part) {
  INFO(text);
  INFO(part);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace zeroth::data
