#include "model/hf/config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/json/json.h"
#include "base/text/printable.h"

namespace zeroth::model {

ConfigReader::ConfigReader(const nlohmann::json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const nlohmann::json* ConfigReader::find(const std::string& key) {
  seen_keys_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigReader::size(const std::string& key, std::optional<int64_t> fallback, int64_t max) {
  const double value = number(key, fallback ? std::optional<double>(*fallback) : std::nullopt);
  const auto entry = object_.find(key);
  if (entry == object_.end() || !entry->is_number()) return static_cast<int64_t>(value);
  if (!(value >= 1) || value != std::floor(value)) {
    add_error(key, fmt::format("is {}, expected a whole number of at least 1", quoted(*entry)));
    return 1;
  }
  if (value > static_cast<double>(max)) {
    add_error(key, fmt::format("is {}, expected at most {}", quoted(*entry), max));
    return 1;
  }
  return static_cast<int64_t>(value);
}

double ConfigReader::number(const std::string& key, std::optional<double> fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) add_error(key, "is missing");
    return fallback.value_or(0);
  }
  if (!value->is_number()) {
    add_error(key, fmt::format("is {}, expected a number", quoted(*value)));
    return fallback.value_or(0);
  }
  return value->get<double>();
}

double ConfigReader::positive(const std::string& key, std::optional<double> fallback) {
  const double value = number(key, fallback);
  if (object_.contains(key) && object_[key].is_number() && !(value > 0)) {
    add_error(key, fmt::format("is {}, expected more than 0", value));
  }
  return value;
}

std::vector<double> ConfigReader::positives(const std::string& key, int64_t count) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    add_error(key, "is missing");
    return {};
  }
  const auto is_positive = [](const nlohmann::json& number) {
    return number.is_number() && number.get<double>() > 0;
  };
  if (!value->is_array() || static_cast<int64_t>(value->size()) != count ||
      !std::all_of(value->begin(), value->end(), is_positive)) {
    add_error(key, fmt::format("is {}, expected {} numbers above 0", quoted(*value), count));
    return {};
  }
  return value->get<std::vector<double>>();
}

bool ConfigReader::flag(const std::string& key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    add_error(key, fmt::format("is {}, expected true or false", quoted(*value)));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, std::optional<std::string> fallback) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) add_error(key, "is missing");
    return fallback.value_or("");
  }
  if (!value->is_string()) {
    add_error(key, fmt::format("is {}, expected a string", quoted(*value)));
    return fallback.value_or("");
  }
  return value->get<std::string>();
}

void ConfigReader::require(const std::string& key, const nlohmann::json& harmless) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && *value != harmless) {
    add_error(key, fmt::format("is {}; only {} is supported", quoted(*value), quoted(harmless)));
  }
}

void ConfigReader::reject(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || *value == false || *value == 0 || value->empty()) return;
  add_error(key, fmt::format("is {}, which is not supported", quoted(*value)));
}

void ConfigReader::add_error(const std::string& key, const std::string& reason) {
  errors_.push_back(fmt::format("{}{} {}", prefix_, key, reason));
}

void ConfigReader::add(const ConfigReader& nested) {
  errors_.insert(errors_.end(), nested.errors_.begin(), nested.errors_.end());
  unknown_keys_.insert(unknown_keys_.end(), nested.unknown_keys_.begin(),
                       nested.unknown_keys_.end());
}

void ConfigReader::collect_unknown_keys(const std::set<std::string>& harmless) {
  for (const auto& [key, value] : object_.items()) {
    if (!seen_keys_.contains(key) && !harmless.contains(key))
      unknown_keys_.push_back(prefix_ + shortened(key));
  }
}

}  // namespace zeroth::model
