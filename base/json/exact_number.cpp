#include "base/json/exact_number.h"

#include <cmath>
#include <limits>
#include <string>

namespace zeroth {

nlohmann::json exact_number(double value) {
  if (std::isfinite(value)) return value;
  const std::string name = std::isnan(value) ? "nan" : "inf";
  return std::signbit(value) ? "-" + name : name;
}

double exact_number(const JsonView& view) {
  if (view.json().is_number()) return view.json().get<double>();
  using Limits = std::numeric_limits<double>;
  const std::string name = view.json().is_string() ? view.text() : "";
  const double sign = name.starts_with('-') ? -1 : 1;
  if (name == "inf" || name == "-inf") return std::copysign(Limits::infinity(), sign);
  if (name == "nan" || name == "-nan") return std::copysign(Limits::quiet_NaN(), sign);
  view.refuse("a number, inf or nan");
}

}  // namespace zeroth
