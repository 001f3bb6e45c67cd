#include "model/hf/config_reader.h"

#include <algorithm>
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

bool ConfigReader::is_null(const std::string& key) {
  return has(key) && find(key) == nullptr;
}

int64_t ConfigReader::size(const std::string& key, std::optional<int64_t> fallback, int64_t max) {
  const double value = number(key, fallback ? std::optional<double>(*fallback) : std::nullopt);
  const auto entry = object_.find(key);
  if (entry == object_.end() || !entry->is_number()) return static_cast<int64_t>(value);
  if (!(value >= 1) || value != std::floor(value)) {
    add_error(key, "is {}, expected a whole number of at least 1", quoted(*entry));
    return 1;
  }
  if (value > static_cast<double>(max)) {
    add_error(key, "is {}, expected at most {}", quoted(*entry), max);
    return 1;
  }
  return static_cast<int64_t>(value);
}

template <typename T>
T ConfigReader::read(const std::string& key, const std::optional<T>& fallback,
                     bool (nlohmann::json::*has_type)() const noexcept, const char* expected) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && (value->*has_type)()) return value->get<T>();
  if (value != nullptr) {
    add_error(key, "is {}, expected {}", quoted(*value), expected);
  } else if (!fallback) {
    add_error(key, "is missing");
  }
  return fallback.value_or(T());
}

double ConfigReader::number(const std::string& key, std::optional<double> fallback) {
  return read(key, fallback, &nlohmann::json::is_number, "a number");
}

bool ConfigReader::flag(const std::string& key, bool fallback) {
  return read(key, std::optional(fallback), &nlohmann::json::is_boolean, "true or false");
}

std::string ConfigReader::text(const std::string& key, std::optional<std::string> fallback) {
  return read(key, fallback, &nlohmann::json::is_string, "a string");
}

double ConfigReader::positive(const std::string& key, std::optional<double> fallback) {
  const double value = number(key, fallback);
  if (object_.contains(key) && object_[key].is_number() && !(value > 0)) {
    add_error(key, "is {}, expected more than 0", value);
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
    add_error(key, "is {}, expected {} numbers above 0", quoted(*value), count);
    return {};
  }
  return value->get<std::vector<double>>();
}

void ConfigReader::require(const std::string& key, const nlohmann::json& harmless) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && *value != harmless) {
    add_error(key, "is {}; only {} is supported", quoted(*value), quoted(harmless));
  }
}

void ConfigReader::reject(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || *value == false || *value == 0 || value->empty()) return;
  add_error(key, "is {}, which is not supported", quoted(*value));
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
