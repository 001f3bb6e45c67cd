#include "base/json/json_view.h"

#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"

namespace zeroth {

JsonView::JsonView(const nlohmann::json& value, std::string path)
    : value_(&value), path_(std::move(path)) {}

void JsonView::refuse(std::string_view expected) const {
  throw Error("{} is {}, expected {}", path_.empty() ? "the file" : path_, quoted(*value_),
              expected);
}

const nlohmann::json& JsonView::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (value_->is_null()) return std::nullopt;
  const auto found = object().find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, (path_.empty() ? "" : path_ + ".") + shortened(key));
}

JsonView JsonView::at(std::string_view key) const {
  const auto found = object().find(key);
  const std::string path = (path_.empty() ? "" : path_ + ".") + shortened(key);
  if (found == value_->end()) throw Error("{} is missing", path);
  return JsonView(*found, path);
}

size_t JsonView::size() const {
  if (!value_->is_array()) refuse("a list");
  return value_->size();
}

JsonView JsonView::at(size_t index) const {
  const std::string path = fmt::format("{}[{}]", path_, index);
  if (index >= size()) throw Error("{} is missing", path);
  return JsonView((*value_)[index], path);
}

const std::string& JsonView::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int64_t JsonView::integer(int64_t min_value, int64_t max_value) const {
  const bool beyond = value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX;
  const int64_t number =
      value_->is_number_integer() && !beyond ? value_->get<int64_t>() : min_value - 1;
  if (number < min_value || number > max_value)
    refuse(fmt::format("an integer in {}..{}", min_value, max_value));
  return number;
}

std::string JsonView::text(std::string_view key, const std::string& default_value) const {
  const auto member = find(key);
  return member ? member->text() : default_value;
}

bool JsonView::flag(std::string_view key, bool default_value) const {
  const auto member = find(key);
  return member ? member->flag() : default_value;
}

}  // namespace zeroth
