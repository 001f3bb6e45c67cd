// Reads the rotary part of config.json, in its old and its new spelling.
#pragma once

#include "model/hf/config_reader.h"
#include "model/spec.h"

namespace zeroth::model {

// Reads rope_theta, rope_scaling and rope_parameters; errors are added to `config`.
RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_positions);

}  // namespace zeroth::model
