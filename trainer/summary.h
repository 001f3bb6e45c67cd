// What a run tells about itself before its first step.
#pragma once

#include <string>

#include "comm/mesh.h"
#include "trainer/environment.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// About ten lines, each with its title; notes last. `threads`: of this rank.
TitledLines summary(const RunPlan& plan, const comm::Mesh& mesh, int threads);

// Its parts, each one line.
std::string model_line(const RunPlan& plan, int64_t parameters);
std::string data_line(const std::string& path, const data::Dataset& dataset);
std::string eval_line(const RunPlan& plan);
std::string batch_line(const RunPlan& plan, int64_t world_size);
// `decay`: parameters that weight decay acts on, and does not.
std::string optimizer_line(const configs::Config& config, const engine::DecayCounts& decay);
// What the loss is a mean of, and dropout.
std::string loss_line(const RunPlan& plan);
// Without training there are no masters.
std::string precision_line(const configs::Config& config, bool trains);

}  // namespace zeroth::trainer
