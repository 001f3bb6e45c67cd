// What tools/make_optim_fixtures.py and tools/make_hf_schedule_fixtures.py wrote.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace zeroth::optim {

// A non-empty list of cases.
inline nlohmann::json load_fixture(const std::string& name) {
  const std::string path = std::string(ZEROTH_SOURCE_DIR "/tests/optim/fixtures/") + name;
  std::ifstream file(path);
  const nlohmann::json cases = nlohmann::json::parse(file);
  if (cases.empty()) throw std::runtime_error(path + " holds no case");
  return cases;
}

}  // namespace zeroth::optim
