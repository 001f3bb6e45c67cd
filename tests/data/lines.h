// Lines in many scripts, with odd white space, control characters, emoji, code and very long words:
// those that tools/make_data_fixtures.py gave to `tokenizers`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace zeroth::data {

class LineMaker {
 public:
  // Of fixtures/lines.json.
  explicit LineMaker(nlohmann::json parts);

  std::string line(uint64_t number) const;

 private:
  nlohmann::json parts_;
};

}  // namespace zeroth::data
