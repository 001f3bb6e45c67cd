// A tree of JSON as a list.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zeroth {

struct FlatValue {
  std::string path;  // "optimizer.params.lr"
  std::string text;  // of a text itself, of all else JSON in one line
};

// Every value below the object `json` that is no object itself, in its order; `path`: where `json`
// stands, before those of its members. A byte that is not UTF-8 becomes U+FFFD. Not printable().
std::vector<FlatValue> flat_values(const nlohmann::ordered_json& json,
                                   const std::string& path = "");

}  // namespace zeroth
