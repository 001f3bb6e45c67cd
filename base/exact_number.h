// Doubles in JSON that come back bit by bit, those that JSON lacks too.
#pragma once

#include <nlohmann/json.hpp>

#include "base/json_view.h"

namespace zeroth {

// A number with as many digits as it takes; or the text "inf", "-inf", "nan" or "-nan". What else
// the bits of a NaN may hold is lost.
nlohmann::json exact_number(double value);

// Throws as JsonView for all else.
double exact_number(const JsonView& view);

}  // namespace zeroth
