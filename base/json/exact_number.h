// Doubles in JSON that survive a round trip bit by bit, including those that JSON does not have.
#pragma once

#include <nlohmann/json.hpp>

#include "base/json/json_view.h"

namespace zeroth {

// Returns a number with as many digits as it needs, or the text "inf", "-inf", "nan" or "-nan".
// Other bits of a NaN are lost.
nlohmann::json exact_number(double value);

// Returns the double that exact_number() wrote. Throws like JsonView for any other value.
double exact_number(const JsonView& view);

}  // namespace zeroth
