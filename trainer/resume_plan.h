// The checkpoint that a run goes on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "configs/offload_config.h"
#include "configs/resolve.h"
#include "trainer/flags/flags.h"
#include "trainer/run_fingerprint.h"

namespace zeroth::trainer {

// What a start measures or chooses, and bits depend on.
struct NumericSettings {
  using Step = configs::OffloadOptimizerConfig::UpdateDevice;
  int64_t threads = 0;            // of a rank; 0: any number
  std::optional<Step> step = {};  // of "auto"; none: it was not measured
  bool operator==(const NumericSettings&) const = default;
};

// Numbers of the best model (BestModel) in a checkpoint.
inline constexpr char kBestStep[] = "best.step";
inline constexpr char kBestSaved[] = "best.saved_step";

// How the sample order is cut into epochs: so many samples, on so many positions. 0: unknown.
struct Epochs {
  int64_t samples = 0, positions = 0;
};

struct ResumePlan {
  std::filesystem::path from =
      {};  // as Engine::load_checkpoint takes it: the checkpoint, or its folder
  std::filesystem::path checkpoint = {};  // "out/checkpoints/step-8"
  int64_t step = 0;
  int64_t batch = 0;      // global
  int64_t positions = 0;  // of the sample order, and samples there, that its steps have taken
  int64_t samples = 0;
  Epochs epochs = {};
  std::optional<int64_t> rank_batch = {};  // configs::Resolved::rank_batch; unset: unknown
  NumericSettings numerics = {};
  std::string run = {};  // whose rounds have saved it (comm::RestartAttempt::run); empty: unknown
  RunFingerprint fingerprint = {};
};

// How many steps of which size took which samples, and how they were computed, among the texts and
// numbers that a checkpoint of this program carries.
struct SavedProgress {
  int64_t batch = 0, positions = 0, samples = 0;
  Epochs epochs = {};
  int64_t rank_batch = 0;
  NumericSettings numerics = {};
  std::string run = {};
};
void save_progress(const SavedProgress& progress, checkpoint::Counters& state);

// Of a manifest. Throws an Error, which begins with `name`, where another program wrote it.
ResumePlan parse_resume_plan(const std::filesystem::path& checkpoint,
                             const checkpoint::Manifest& manifest);

// What --resume means: the newest complete one. Nothing where the run begins anew. Throws an Error
// where there is none to go on from, with the reason of each that is no use.
std::optional<ResumePlan> find_resume_plan(const Flags& flags);

// The same in a later round of `run` (empty: unknown): what the rounds before have saved, however
// --resume reads; else what it means, which is not an Error where nothing was saved yet. Of
// checkpoints that an earlier run has left in the output none is taken for this one's.
std::optional<ResumePlan> find_restart_resume_plan(const Flags& flags, const std::string& run);

// How a rank has to compute to have the bits of before. Only where ranks and processor
// (describe_cpu_isa()) are the same is there anything to keep.
NumericSettings numerics_to_keep(const ResumePlan& before, int64_t ranks,
                                 const std::string& processor);

// Throws an Error with every difference that must not be, which flag gave the value of now, by
// `origins`, and which one allows it. Returns the others in one line; empty: there are none.
std::string compare_fingerprints(const ResumePlan& before, const RunFingerprint& now,
                                 const ResumeFlags& flags, const configs::Origins& origins = {});

}  // namespace zeroth::trainer
