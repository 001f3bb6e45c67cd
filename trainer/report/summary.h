// What a run tells about itself before its first step.
#pragma once

#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "engine/memory_check.h"
#include "trainer/report/environment.h"
#include "trainer/run_plan.h"

namespace zeroth::comm {
struct RankEnv;
}

namespace zeroth::trainer {

struct SummaryLine {
  std::string title;
  std::string text;
  configs::LogLevel level = configs::LogLevel::kInfo;  // from which on it is shown

  bool operator==(const SummaryLine&) const = default;
};

using SummaryLines = std::vector<SummaryLine>;

SummaryLine note_line(const std::string& text);
SummaryLine warning_line(const std::string& text);

// About ten lines, then notes, then warnings. `threads`: of this rank.
SummaryLines summary(const RunPlan& plan, const engine::RunMemory& memory,
                     const comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads);

// Moves the warnings to the end, and returns where they begin.
SummaryLines::iterator put_warnings_last(SummaryLines& lines);

// Its parts, each one line.
std::string model_line(const std::string& directory, const model::ModelSpec& spec,
                       int64_t parameters);
std::string data_line(const std::string& path, const data::Dataset& dataset);
std::string train_line(const std::string& path, const Samples& samples);
std::string eval_line(const std::string& path, const Samples& samples);
// When it is evaluated and saved before the end; empty: never.
std::string interval_line(const RunPlan& plan);
// Where ranks split layers: how many there are on each axis, and which ranks do so together.
std::string mesh_line(const comm::MeshShape& shape);
std::string batch_line(const configs::Config& config, const Samples& samples, int64_t num_ranks);
// `decay`: parameters that weight decay acts on, and does not. `clipping`: who says the norm to
// which gradients are clipped; empty: nobody.
std::string optimizer_line(const configs::Config& config, const engine::DecayCounts& decay,
                           std::string_view clipping = {});
// What the loss is a mean of, and dropout.
std::string loss_line(configs::LossMean mean, const model::ModelSpec& spec);
// Without training there are no masters.
std::string precision_line(const configs::Config& config, bool trains);

// One line each; empty where all that was asked for takes place.
std::vector<std::string> offload_notes(const engine::RunMemory& run);

}  // namespace zeroth::trainer
