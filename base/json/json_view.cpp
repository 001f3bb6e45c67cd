#include "base/json/json_view.h"

#include <cmath>
#include <limits>
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

std::string JsonView::member_path(std::string_view key) const {
  return (path_.empty() ? "" : path_ + ".") + shortened(key);
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (value_->is_null()) return std::nullopt;
  const auto found = object().find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, member_path(key));
}

JsonView JsonView::at(std::string_view key) const {
  const auto found = object().find(key);
  if (found == value_->end()) throw Error("{} is missing", member_path(key));
  return JsonView(*found, member_path(key));
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

std::vector<std::string> JsonView::texts() const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < size(); ++i) texts.push_back(at(i).text());
  return texts;
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

nlohmann::json exact_number(double value) {
  if (std::isfinite(value)) return value;
  const std::string name = std::isnan(value) ? "nan" : "inf";
  return std::signbit(value) ? "-" + name : name;
}

double exact_number(const JsonView& view) {
  if (view.json().is_number()) return view.json().get<double>();
  const auto number = parse_non_finite(view.json().is_string() ? view.text() : "");
  if (!number) view.refuse("a number, inf or nan");
  return *number;
}

std::optional<double> parse_non_finite(std::string_view name) {
  using Limits = std::numeric_limits<double>;
  const double sign = name.starts_with('-') ? -1 : 1;
  if (name == "inf" || name == "-inf") return std::copysign(Limits::infinity(), sign);
  if (name == "nan" || name == "-nan") return std::copysign(Limits::quiet_NaN(), sign);
  return std::nullopt;
}

}  // namespace zeroth
