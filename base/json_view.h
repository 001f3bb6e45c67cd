// A value of a parsed file together with its path, so that whatever is wrong with it is told by
// key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth {

// Cheap to copy; the tree must outlive it. All but `json`, `path` and `find` throw an Error
// "PATH is VALUE, expected KIND" or "PATH is missing"; who knows the file puts its name before.
class JsonView {
 public:
  // `path`: what messages call the value; empty: "the file".
  explicit JsonView(const nlohmann::json& value, std::string path = "");

  const nlohmann::json& json() const { return *value_; }
  const std::string& path() const { return path_; }

  // A member of this object.
  JsonView at(std::string_view key) const;
  // Nothing when it is absent or null, or this is null itself.
  std::optional<JsonView> find(std::string_view key) const;
  // An element of this list.
  JsonView at(size_t index) const;
  size_t size() const;  // of this list

  const std::string& text() const;
  bool flag() const;
  int64_t integer(int64_t min_value, int64_t max_value) const;

  // Of a member that may be absent or null.
  std::string text(std::string_view key, const std::string& default_value) const;
  bool flag(std::string_view key, bool default_value) const;

  const nlohmann::json& object() const;  // this value, which must be one

  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace zeroth
