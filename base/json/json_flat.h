// Flattening of a JSON tree to a list.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace zeroth {

struct FlatValue {
  std::string path;  // "optimizer.params.lr"
  std::string text;  // a string's own text, or any other value as JSON in one line
};

// Returns every value below the object `json` that is not an object itself, in order. `path` is the
// path of `json` itself and becomes the prefix of all paths. Bytes that are not UTF-8 become
// U+FFFD. The texts are not printable().
std::vector<FlatValue> flat_values(const nlohmann::ordered_json& json,
                                   const std::string& path = "");

}  // namespace zeroth
