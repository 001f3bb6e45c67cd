// The checkpoint from which a run resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/manifest.h"
#include "configs/offload_config.h"
#include "configs/resolve.h"
#include "trainer/run_fingerprint.h"

namespace zeroth::trainer {

struct Flags;
struct ResumeFlags;

// Settings that are measured or chosen at the start, and on which bits of the results depend.
struct NumericSettings {
  using Step = configs::OffloadOptimizerConfig::UpdateDevice;
  int64_t threads = 0;            // CPU threads of a rank; 0: any number
  std::optional<Step> step = {};  // choice of "auto"; none: not measured
  bool operator==(const NumericSettings&) const = default;
};

// Names of the best model's (BestModel) counters in a checkpoint.
inline constexpr char kBestStep[] = "best.step";
inline constexpr char kBestSaved[] = "best.saved_step";

// Layout of epochs in the sample order: samples of an epoch, on so many positions. 0: unknown.
struct Epochs {
  int64_t samples = 0, positions = 0;
};

struct ResumePlan {
  // Argument of Engine::load_checkpoint: the checkpoint, or its directory.
  std::filesystem::path from = {};
  std::filesystem::path checkpoint = {};  // "out/checkpoints/step-8"
  int64_t step = 0;
  int64_t batch = 0;      // global batch size
  int64_t positions = 0;  // of the sample order, and samples there, that its steps have consumed
  int64_t samples = 0;
  Epochs epochs = {};
  std::optional<int64_t> rank_batch = {};  // configs::Resolved::rank_batch; unset: unknown
  NumericSettings numerics = {};
  std::string run = {};  // run whose attempts saved it (RestartAttempt::run); empty: unknown
  RunFingerprint fingerprint = {};
};

// Writes what parse_resume_plan() reads among the texts and numbers of a checkpoint: how many steps
// of which size consumed which samples, how they were computed, and in which run.
void save_progress(const ResumePlan& progress, checkpoint::Counters& state);

// Parses a manifest. Throws an Error, which begins with the path of `checkpoint`, if another
// program wrote it.
ResumePlan parse_resume_plan(const std::filesystem::path& checkpoint,
                             const checkpoint::Manifest& manifest);

// Returns the checkpoint that --resume selects: the newest complete one. Returns nothing if the run
// starts from scratch. Throws an Error if there is none to resume from, with the reason for each
// unusable one.
std::optional<ResumePlan> find_resume_plan(const Flags& flags);

// Returns the checkpoint for a later restart attempt of `run` (empty: unknown): the newest one that
// earlier attempts saved, whatever --resume selects; otherwise the one that --resume selects, and
// nothing if none was saved yet. Never mistakes a checkpoint of an earlier run in the output for
// one of `run`.
std::optional<ResumePlan> find_restart_resume_plan(const Flags& flags, const std::string& run);

// Returns the settings with which a rank reproduces the bits of the previous run. They are kept
// only if ranks and processor (describe_cpu_isa()) are the same.
NumericSettings numerics_to_keep(const ResumePlan& before, int64_t ranks,
                                 const std::string& processor);

// Returns the flag with which a new run starts from the weights of a checkpoint.
std::string_view weights_flag(const std::filesystem::path& checkpoint);

// Throws an Error with every difference that is not allowed, the flag that gave the current value,
// by `origins`, and the flag that allows the difference. Returns the other differences in one line;
// empty: none.
std::string compare_fingerprints(const ResumePlan& before, const RunFingerprint& now,
                                 const ResumeFlags& flags, const configs::Origins& origins = {});

}  // namespace zeroth::trainer
