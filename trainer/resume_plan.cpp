#include "trainer/resume_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "checkpoint/find.h"
#include "checkpoint/foreign.h"
#include "checkpoint/names.h"
#include "checkpoint/posix_file_system.h"
#include "model/hf/adapter_files.h"
#include "model/hf/safetensors.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr char kBatch[] = "data.batch";
constexpr char kPositions[] = "data.positions";
constexpr char kSamples[] = "data.samples";
constexpr char kEpochSamples[] = "data.epoch_samples";
constexpr char kEpochPositions[] = "data.epoch_positions";
constexpr char kRankBatch[] = "data.rank_batch";
constexpr char kThreads[] = "threads";
constexpr char kStep[] = "offload_optimizer.step";
constexpr char kRun[] = "run";
constexpr int64_t kMaxThreads = 65'536;          // of a rank
constexpr std::string_view kClient = "client.";  // the engine's prefix of a program's own counters

// Returns a program's own number or text; null if there is none.
const checkpoint::Counter* find_counter(const checkpoint::Manifest& manifest, const char* name) {
  const auto found = manifest.counters.find(std::string(kClient) + name);
  return found == manifest.counters.end() ? nullptr : &found->second;
}

int64_t counter_value(const checkpoint::Manifest& manifest, const char* name, const fs::path& path,
                      int64_t max = checkpoint::kMaxCount) {
  const int64_t* const value = std::get_if<int64_t>(find_counter(manifest, name));
  if (value == nullptr || *value < 0) {
    throw Error("{}: has no {}: it was not saved by finetune", path.string(), name);
  }
  if (*value > max) {
    throw Error("{}: counters.{}{} is {}, expected an integer in 0..{}",
                (path / checkpoint::kManifest).string(), kClient, name, *value, max);
  }
  return *value;
}

// Checks the counts of earlier steps, which a forged manifest can set to any value.
void check_progress(const checkpoint::Manifest& manifest, const ResumePlan& found) {
  const fs::path file = found.checkpoint / checkpoint::kManifest;
  if (found.samples > found.positions || found.step > found.positions) {
    throw Error("{}: {}{} is {}, fewer than the samples ({}) or steps ({}) that it covers",
                file.string(), kClient, kPositions, found.positions, found.samples, found.step);
  }
  for (const char* const name : {kBestStep, kBestSaved}) {
    if (find_counter(manifest, name) != nullptr) {
      (void)counter_value(manifest, name, found.checkpoint, found.step);
    }
  }
}

// Returns a number that earlier versions did not save; 0 if it is missing.
int64_t counter_or_zero(const checkpoint::Manifest& manifest, const char* name,
                        const fs::path& path) {
  return find_counter(manifest, name) != nullptr ? counter_value(manifest, name, path) : 0;
}

// Returns the batch that a rank ran, for a checkpoint of an earlier version, which did not save the
// requested one.
std::optional<int64_t> parse_rank_batch(const checkpoint::StringMap& texts) {
  int64_t product = 1;
  for (const char* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    const auto found = texts.find(key);
    const auto value = found == texts.end() ? std::nullopt : parse_number<int64_t>(found->second);
    if (!value || *value < 1 || *value > kMaxRows) return std::nullopt;
    product *= *value;
  }
  return product;
}

// Returns a program's own text among the counters; empty if there is none.
std::string text_counter(const checkpoint::Manifest& manifest, const char* name) {
  const auto* const text = std::get_if<std::string>(find_counter(manifest, name));
  return text == nullptr ? "" : *text;
}

std::string step_device_name(NumericSettings::Step step) {
  return step == NumericSettings::Step::kGpu ? "gpu" : "cpu";
}

std::optional<NumericSettings::Step> parse_step_device(const checkpoint::Manifest& manifest) {
  const std::string stored = text_counter(manifest, kStep);
  for (const NumericSettings::Step step :
       {NumericSettings::Step::kCpu, NumericSettings::Step::kGpu}) {
    if (stored == step_device_name(step)) return step;
  }
  return std::nullopt;  // it is measured again
}

// Returns why no run can resume from `path`.
std::string unusable_reasons(const std::vector<checkpoint::CheckpointInfo>& found,
                             const fs::path& path) {
  std::vector<std::string> lines;
  for (const checkpoint::CheckpointInfo& one : found) {
    lines.push_back(one.complete() ? one.name + " is a model without states" : one.fault);
  }
  std::reverse(lines.begin(), lines.end());
  for (const checkpoint::WeightsDirectory& one : checkpoint::list_weights_directories(path)) {
    lines.push_back(
        fmt::format("{} holds weights only, as an earlier version or --save_only_model saved them",
                    (path / one.name).string()));
  }
  return listed(lines);
}

// Describes a checkpoint of another program: the directory itself, or else the newest checkpoint
// that Trainer has left in it. Returns an empty text if neither is one.
std::string describe_foreign_checkpoint(const fs::path& path) {
  const auto file_system = checkpoint::PosixFileSystem::find(path);
  if (!file_system) return "";
  if (const auto found = checkpoint::find_foreign(*file_system, "")) {
    return checkpoint::describe(*found, path);
  }
  std::map<int64_t, std::string> theirs;
  for (const checkpoint::DirectoryEntry& entry : file_system->list("")) {
    if (entry.kind != checkpoint::DirectoryEntry::Kind::kDirectory) continue;
    const auto step = checkpoint::parse_trainer_step(entry.name);
    if (step) theirs[*step] = entry.name;
  }
  if (theirs.empty()) return "";
  const auto found = checkpoint::find_foreign(*file_system, theirs.rbegin()->second);
  return found ? checkpoint::describe(*found, path / theirs.rbegin()->second) : "";
}

// Returns the newest complete checkpoint in a directory; nothing if there is no checkpoint at all.
std::optional<ResumePlan> find_newest(const fs::path& path) {
  const checkpoint::CheckpointLocation place = checkpoint::locate(path);
  std::optional<std::string> name = place.checkpoint;
  std::vector<checkpoint::CheckpointInfo> found;
  if (place.file_system != nullptr && !name) {
    found = checkpoint::list_checkpoints(*place.file_system);
    if (const checkpoint::CheckpointInfo* best = checkpoint::newest(found)) name = best->name;
  }
  if (place.file_system != nullptr && name) {
    ResumePlan plan =
        parse_resume_plan(checkpoint::full_path(*place.file_system, *name),
                          checkpoint::read_manifest(*place.file_system, *name).manifest);
    plan.from = path;
    return plan;
  }
  if (found.empty()) {
    if (const std::string foreign = describe_foreign_checkpoint(path); !foreign.empty())
      throw Error("{}", foreign);
  }
  if (const std::string why = unusable_reasons(found, path); !why.empty()) {
    throw Error("cannot resume from {}: {}", path.string(), why);
  }
  return std::nullopt;
}

// Returns whether the key, or a section that it is in, is allowed to differ.
bool is_allowed(const std::string& key, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& one) { return is_key_under(key, one); });
}

// The flag that sets a key which must not differ. The first row applies whose key is a prefix.
struct KeyFlag {
  std::string_view key, flag;
};
constexpr KeyFlag kKeyFlags[] = {
    {"data.positions", "--seq-len"},
    {"data.samples", "--data or --max_train_samples"},
    {"data.shuffled", "--no-shuffle"},
    {"data.fields", "--prompt-field, --completion-field and --separator"},
    {"data.long_text", "--long-text"},
    {"data.", "the samples have changed: --data"},
    {"tokenizer.", "the samples have changed: tokenizer.json in --model"},
    {"model.", "--model"},
    {"seed", "--seed"},
    {"", "the flag or the configuration's key"},
};

std::string remedy(const std::string& key) {
  if (key == "train_batch_size") return "; --allow-batch-change lets it differ";
  if (is_changeable(key)) return fmt::format("; --allow-change {} lets it differ", key);
  const auto key_flag = std::find_if(std::begin(kKeyFlags), std::end(kKeyFlags),
                                     [&](const KeyFlag& one) { return key.starts_with(one.key); });
  return fmt::format("; {} must stay the same", key_flag->flag);
}

// Returns " (--lr)" if a flag gives the key its value.
std::string flag_suffix(const std::string& key, const configs::Origins& origins) {
  constexpr std::string_view kAuto = "auto: ";
  for (const FlagOnlyValue& value : kFlagOnlyValues) {
    if (key == value.key) return fmt::format(" ({})", value.flag);
  }
  const auto found = origins.find(key);
  if (found == origins.end()) return "";
  std::string_view origin = found->second;
  if (origin.starts_with(kAuto)) origin.remove_prefix(kAuto.size());
  return origin.starts_with("--") ? fmt::format(" ({})", origin) : "";
}

std::string describe_difference(const checkpoint::Difference& one,
                                const configs::Origins& origins) {
  return fmt::format("{}{} was {}, is now {}", one.key, flag_suffix(one.key, origins),
                     shortened(one.stored.value_or("not set")),
                     shortened(one.now.value_or("not set")));
}

void check_allowed(const ResumeFlags& flags) {
  for (const std::string& key : flags.may_change) {
    if (is_changeable(key)) continue;
    throw Error(
        "--allow-change {}: must be gradient_clipping, dropout, loss_mean, or a key of the "
        "scheduler or of optimizer.params",
        shortened(key));
  }
}

}  // namespace

void save_progress(const ResumePlan& progress, checkpoint::Counters& state) {
  state[kBatch] = progress.batch;
  state[kPositions] = progress.positions;
  state[kSamples] = progress.samples;
  state[kEpochSamples] = progress.epochs.samples;
  state[kEpochPositions] = progress.epochs.positions;
  state[kRankBatch] = progress.rank_batch.value_or(0);
  state[kThreads] = progress.numerics.threads;
  if (progress.numerics.step) state[kStep] = step_device_name(*progress.numerics.step);
  if (!progress.run.empty()) state[kRun] = progress.run;
}

ResumePlan parse_resume_plan(const fs::path& checkpoint, const checkpoint::Manifest& manifest) {
  ResumePlan found{
      .from = checkpoint,
      .checkpoint = checkpoint,
      .step = manifest.step,
      .batch = std::max<int64_t>(1, counter_value(manifest, kBatch, checkpoint)),
      .positions = counter_value(manifest, kPositions, checkpoint),
      .samples = counter_value(manifest, kSamples, checkpoint),
      .epochs = {.samples = counter_or_zero(manifest, kEpochSamples, checkpoint),
                 .positions = counter_or_zero(manifest, kEpochPositions, checkpoint)},
      .rank_batch = find_counter(manifest, kRankBatch) != nullptr
                        ? counter_value(manifest, kRankBatch, checkpoint)
                        : parse_rank_batch(manifest.may_change),
      .numerics = {.threads = counter_value(manifest, kThreads, checkpoint, kMaxThreads),
                   .step = parse_step_device(manifest)},
      .run = text_counter(manifest, kRun),
      .fingerprint = {manifest.must_equal, manifest.may_change}};
  check_progress(manifest, found);
  return found;
}

std::optional<ResumePlan> find_resume_plan(const Flags& flags) {
  using From = ResumeFlags::From;
  const ResumeFlags& resume = flags.resume;
  if (!resume.is_on()) return std::nullopt;
  check_allowed(resume);
  const fs::path path = fs::path(resume.from == From::kNamed ? resume.directory : flags.output);
  auto found = find_newest(path);
  if (found || resume.from == From::kNewestOrNothing) return found;
  std::error_code unknown;
  const bool has_model = fs::exists(path / "config.json", unknown) && model::has_weights(path);
  throw Error("--resume: there is no checkpoint in {}{}{}", path.string(),
              resume.from == From::kNamed ? "" : "; --resume auto starts from scratch",
              has_model
                  ? fmt::format("; it has only a model: to start from its weights, use --model "
                                "{} without --resume",
                                path.string())
                  : "");
}

std::optional<ResumePlan> find_restart_resume_plan(const Flags& flags, const std::string& run) {
  using From = ResumeFlags::From;
  check_allowed(flags.resume);
  const bool named = flags.resume.from == From::kNamed;
  const checkpoint::CheckpointLocation place = checkpoint::locate(flags.output);
  const bool any =
      place.file_system != nullptr && checkpoint::newest(list_checkpoints(*place.file_system));
  if (any) {
    auto newest = find_newest(flags.output);
    if (run.empty() || newest->run == run) return newest;
  }
  if (flags.resume.from == From::kNothing && !run.empty()) return std::nullopt;
  return find_newest(named ? flags.resume.directory : flags.output);
}

NumericSettings numerics_to_keep(const ResumePlan& before, int64_t ranks,
                                 const std::string& processor) {
  const auto was = [&](const char* key, const std::string& here) {
    const auto stored = before.fingerprint.may_change.find(key);
    return stored != before.fingerprint.may_change.end() && stored->second == here;
  };
  const bool same = was("ranks", fmt::format("{}", ranks)) && was("processor", processor);
  return same ? before.numerics : NumericSettings{};
}

std::string_view weights_flag(const fs::path& checkpoint) {
  return model::has_adapter(checkpoint) ? "--adapter" : "--model";
}

std::string compare_fingerprints(const ResumePlan& before, const RunFingerprint& now,
                                 const ResumeFlags& flags, const configs::Origins& origins) {
  std::vector<std::string> blocked, refused, reported;  // blocked ones are listed first
  for (const auto& one : checkpoint::differences(before.fingerprint.must_equal, now.must_equal)) {
    const bool batch = one.key == "train_batch_size";
    const std::string text = describe_difference(one, origins);
    if (batch ? flags.allow_batch_change : is_allowed(one.key, flags.may_change)) {
      reported.push_back(text);
    } else if (batch || is_changeable(one.key)) {
      refused.push_back(text + remedy(one.key));
    } else {
      blocked.push_back(text + remedy(one.key));
    }
  }
  if (!blocked.empty() || !refused.empty()) {
    std::string hint;
    if (!blocked.empty()) {  // no flag lets these differ
      hint = fmt::format("\n  to start a new run from its weights, use {} {} without --resume",
                         weights_flag(before.checkpoint), before.checkpoint.string());
    }
    blocked.insert(blocked.end(), refused.begin(), refused.end());
    throw Error("{} belongs to another run: {}{}", before.checkpoint.string(), listed(blocked),
                hint);
  }
  for (const auto& one : checkpoint::differences(before.fingerprint.may_change, now.may_change)) {
    reported.push_back(describe_difference(one, origins));
  }
  return fmt::format("{}", fmt::join(reported, ", "));
}

}  // namespace zeroth::trainer
