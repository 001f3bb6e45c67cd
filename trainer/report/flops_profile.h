// The operations, parameters and times of one step as a table: flops_profiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"
#include "engine/engine.h"
#include "model/spec.h"

namespace zeroth::trainer {

struct ProfileFacts {
  const configs::Config& config;
  const model::ModelSpec& spec;
  int64_t seq_len = 0;
  int64_t world_size = 1;
  int64_t num_parameters = 0;  // tied ones once
};

// What flops_profiler prints of the step whose `stats` hold its blocks. Operations and times are
// those of one rank in one step; operations are counted, as in model/flops.h, for whole samples, of
// which ranks that split layers do equal parts.
std::string profile_text(const engine::StepStats& stats, const ProfileFacts& facts);

// The same into flops_profiler.output_file, or where there is none to be printed: returned without
// its end. Throws as write_profile.
std::string show_profile(const engine::StepStats& stats, const ProfileFacts& facts);

// Replaces flops_profiler.output_file, whose folder is made when it is missing; an empty text only
// tries whether that is possible. Throws an Error that names the key and the path.
void write_profile(const std::string& path, const std::string& text);

}  // namespace zeroth::trainer
