#include "base/json/json_flat.h"

namespace zeroth {
namespace {

using Json = nlohmann::ordered_json;

void add_values(const Json& json, const std::string& path, std::vector<FlatValue>& values) {
  for (const auto& [key, value] : json.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      add_values(value, inner, values);
    } else {
      values.push_back({inner, value.is_string()
                                   ? value.get<std::string>()
                                   : value.dump(-1, ' ', false, Json::error_handler_t::replace)});
    }
  }
}

}  // namespace

std::vector<FlatValue> flat_values(const Json& json, const std::string& path) {
  std::vector<FlatValue> values;
  add_values(json, path, values);
  return values;
}

}  // namespace zeroth
