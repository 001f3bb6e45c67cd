// A SAX handler that follows nlohmann's parser through a text and builds the tree. It knows the
// path of the current value, and needs linear time for ordered objects too. Part of
// base/json/json.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth::detail {

// JsonParseFailure describes where and why nlohmann's parser stops.
struct JsonParseFailure {
  size_t position = 0;  // bytes read, with the offending one
  std::string token;    // last token read; exact for texts and numbers
  int id = 0;
  std::string reason;  // nlohmann's text, to distinguish kinds; not for users

  bool is(std::string_view kind) const { return reason.find(kind) != reason.npos; }
};

// JsonTree handles nlohmann's SAX events.
template <typename Json>
class JsonTree {
 public:
  using number_integer_t = typename Json::number_integer_t;
  using number_unsigned_t = typename Json::number_unsigned_t;
  using number_float_t = typename Json::number_float_t;
  using string_t = typename Json::string_t;
  using binary_t = typename Json::binary_t;

  bool null() { return value(nullptr); }
  bool boolean(bool flag) { return value(flag); }
  bool number_integer(number_integer_t number) { return value(number); }
  bool number_unsigned(number_unsigned_t number) { return value(number); }
  bool number_float(number_float_t number, const string_t&) { return value(number); }
  bool string(string_t& text) { return value(std::move(text)); }
  bool binary(binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    Level& level = levels_.back();
    level.key = std::move(name);
    level.awaits_value = true;
    if (has_key(level) && ++duplicate_keys.count <= kMaxErrors)
      duplicate_keys.paths.push_back(path());
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& reason) {
    failure = {position, token, reason.id, reason.what()};
    return false;
  }

  // Returns the parser's current path, "zero_optimization.stage" or "merges[12]", shortened if it
  // is long.
  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.container->is_array()) {
        text += "[" + std::to_string(level.index) + "]";
      } else if (!level.key.empty()) {
        text += (text.empty() ? "" : ".") + shortened(level.key);
      }
    }
    return shortened(text, kMaxPathBytes);
  }

  bool is_within() const { return !levels_.empty(); }
  bool is_in_array() const { return is_within() && levels_.back().container->is_array(); }
  bool awaits_value() const { return is_within() && levels_.back().awaits_value; }

  Json root;
  DuplicateKeys duplicate_keys;
  JsonParseFailure failure;

 private:
  static constexpr size_t kMaxPathBytes = 120;
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  struct Level {
    Json* container;
    size_t index = 0;                                        // in an array: of the current value
    std::string key = {};                                    // in an object: of the current member
    bool awaits_value = false;                               // in an object: its key was read
    std::unordered_map<std::string, size_t> positions = {};  // in an ordered object, by key
  };

  bool has_key(const Level& level) const {
    if constexpr (kOrdered) return level.positions.contains(level.key);
    return level.container->contains(level.key);
  }

  // Stores the value and returns where it is. The reference is valid while the container is open,
  // because only the innermost container grows.
  Json& put(Json value) {
    if (levels_.empty()) return root = std::move(value);
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return level.container->back();
    }
    level.awaits_value = false;
    auto& members = level.container->template get_ref<typename Json::object_t&>();
    if constexpr (kOrdered) {
      const auto [it, added] = level.positions.try_emplace(level.key, members.size());
      if (!added) return members.begin()[it->second].second = std::move(value);
      members.emplace_back(level.key, std::move(value));
      return members.back().second;
    } else {
      return members.insert_or_assign(level.key, std::move(value)).first->second;
    }
  }

  template <typename Value>
  bool value(Value&& content) {
    put(Json(std::forward<Value>(content)));
    return finish_value();
  }

  bool open(Json container) {
    Json& inserted = put(std::move(container));
    levels_.push_back({.container = &inserted});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return finish_value();
  }

  bool finish_value() {
    if (is_within()) ++levels_.back().index;
    return true;
  }

  std::vector<Level> levels_;
};

}  // namespace zeroth::detail
