// The guess of base/nearest.h under this layer's name.
#pragma once

#include "base/nearest.h"

namespace zeroth::configs {

using zeroth::nearest_name;

}  // namespace zeroth::configs
