// The summary that a run prints before its first step.
#pragma once

#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "engine/memory/memory_check.h"
#include "trainer/run_plan.h"

namespace zeroth::comm {
struct RankEnv;
}

namespace zeroth::trainer {

struct SummaryLine {
  std::string title;
  std::string text;
  configs::LogLevel level = configs::LogLevel::kInfo;  // level at which it is shown

  bool operator==(const SummaryLine&) const = default;
};

using SummaryLines = std::vector<SummaryLine>;

SummaryLine note_line(const std::string& text);
SummaryLine warning_line(const std::string& text);

// Returns about ten lines, then notes, then warnings. `threads`: of this rank.
SummaryLines summary(const RunPlan& plan, const engine::RunMemory& memory,
                     const comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads);

// Moves the warnings to the end, and returns an iterator to the first one.
SummaryLines::iterator put_warnings_last(SummaryLines& lines);

// Returns the last name in a path, also of one that ends with a slash.
std::string file_name(const std::string& path);

// Each of these functions returns one line of the summary.
std::string model_line(const std::string& directory, const model::ModelSpec& spec,
                       int64_t parameters);
// Describes the adapters of a run that has them.
std::string adapter_line(const RunPlan& plan);
// `paths` are those of the dataset's files.
std::string data_line(const std::vector<std::string>& paths, const data::Dataset& dataset);
// Returns when the run evaluates and saves before its end; empty: never.
std::string interval_line(const RunPlan& plan);
// Returns "2 on cpu, 1 thread each, avx512"; the last part is the instruction set of a CPU that
// computes.
std::string ranks_text(const comm::DeviceMesh& mesh, int threads);
// Returns the number of ranks on each mesh dimension, and the tensor-parallel groups of ranks.
std::string mesh_line(const comm::MeshShape& shape);
// `batch`: of any rank.
std::string batch_line(const data::BatchPartition& batch, const Samples& samples,
                       int64_t num_ranks);
// `decay`: numbers of parameters with and without weight decay. `clipping`: origin of the norm to
// which gradients are clipped; empty: none.
std::string optimizer_line(const configs::Config& config, const engine::DecayCounts& decay,
                           std::string_view clipping = {});
// Returns over what the loss is a mean, and the dropout.
std::string loss_line(configs::LossMean mean, const model::ModelSpec& spec,
                      double lora_dropout = 0);
// Returns the precision; it mentions masters only if the run trains.
std::string precision_line(const configs::Config& config, bool trains);

// Returns one line for each offload setting without effect; empty if all of them take effect.
std::vector<std::string> offload_notes(const engine::RunMemory& run);

}  // namespace zeroth::trainer
