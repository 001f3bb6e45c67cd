// What the tests of containers share: the records of a file, and fixtures of each container.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "data/records/arrow_loader.h"
#include "data/records/record_source.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data {

inline std::filesystem::path container(const std::string& name) {
  return fixture("containers") / name;
}

struct Records {
  std::vector<nlohmann::ordered_json> values;
  std::vector<int64_t> lines;
};

// The first records of a file, parsed if they are texts; all of them if there are fewer.
inline Records read_records_of(const std::filesystem::path& path, size_t count = 1'000) {
  Records records;
  for_each_record({.path = path}, [&](const RawRecord& record) {
    CHECK((record.row == nullptr) == !record.text.empty());
    records.values.push_back(record.row != nullptr
                                 ? std::move(*record.row)
                                 : parse_ordered_json(record.text, {.name = path.string()}));
    records.lines.push_back(record.line);
    return records.values.size() < count;
  });
  return records;
}

// Returns false, with a message, where this build has no Apache Arrow.
inline bool has_arrow() {
  const bool found = arrow_library().has_value();
  if (!found) MESSAGE("skipped: this build has no Apache Arrow (tools/setup --arrow)");
  return found;
}

}  // namespace zeroth::data
