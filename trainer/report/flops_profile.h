// A table of the operations, parameters and times of one step: flops_profiler.
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
  int64_t num_parameters = 0;  // tied ones count once
};

// Returns flops_profiler's table of the step whose `stats` hold its blocks. Operations and times
// are those of one rank in one step. Operations are counted, as in model/flops.h, for full samples,
// of which tensor-parallel ranks do equal parts.
std::string profile_text(const engine::StepStats& stats, const ProfileFacts& facts);

// Writes profile_text() to flops_profiler.output_file and returns an empty text; without that file,
// returns the text to print, without its last newline. Throws as write_profile().
std::string show_profile(const engine::StepStats& stats, const ProfileFacts& facts);

// Replaces flops_profiler.output_file, and creates its directory if that is missing; an empty text
// only tests whether that is possible. Throws an Error that names the key and the path.
void write_profile(const std::string& path, const std::string& text);

}  // namespace zeroth::trainer
