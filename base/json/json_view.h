// A value of a parsed file together with its path, so that errors about it name the key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// A JsonView is cheap to copy; the tree must outlive it. All methods except `json`, `path` and
// `find` throw an Error "PATH is VALUE, expected KIND" or "PATH is missing". The caller, which
// knows the file, adds its name.
class JsonView {
 public:
  // `path` is the name of the value in messages; an empty one means "the file".
  explicit JsonView(const nlohmann::json& value, std::string path = "");

  const nlohmann::json& json() const { return *value_; }
  const std::string& path() const { return path_; }

  // Returns a member of this object.
  JsonView at(std::string_view key) const;
  // Returns a member, or nullopt if it is absent or null, or if this value itself is null.
  std::optional<JsonView> find(std::string_view key) const;
  // Returns an element of this list.
  JsonView at(size_t index) const;
  size_t size() const;  // of this list

  const std::string& text() const;
  std::vector<std::string> texts() const;  // of this list of strings
  bool flag() const;
  int64_t integer(int64_t min_value, int64_t max_value) const;

  // Returns the value of a member, or `default_value` if it is absent or null.
  std::string text(std::string_view key, const std::string& default_value) const;
  bool flag(std::string_view key, bool default_value) const;

  const nlohmann::json& object() const;  // this value, which must be one

  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  std::string member_path(std::string_view key) const;

  const nlohmann::json* value_;
  std::string path_;
};

// Returns a number with as many digits as it needs, or the text "inf", "-inf", "nan" or "-nan", so
// that a double survives a round trip bit by bit. Other bits of a NaN are lost.
nlohmann::json exact_number(double value);

// Returns the double that exact_number() wrote. Throws like JsonView for any other value.
double exact_number(const JsonView& view);

// Returns the double that "inf", "-inf", "nan" or "-nan" names, or nullopt for any other text.
std::optional<double> parse_non_finite(std::string_view name);

}  // namespace zeroth
