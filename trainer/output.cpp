#include "trainer/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/files/replace_file.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"
#include "base/machine/random_bytes.h"
#include "base/text/units.h"
#include "checkpoint/find.h"
#include "checkpoint/owner.h"
#include "checkpoint/posix_file_system.h"
#include "checkpoint/rank_group.h"
#include "comm/cpu_collectives.h"
#include "engine/memory/free_space.h"
#include "model/hf/model_directory.h"
#include "model/hf/model_layout.h"
#include "model/hf/multimodal.h"
#include "model/hf/temporary_directory.h"
#include "trainer/run_plan.h"
#include "trainer/start_point.h"
#include "trainer/step_trigger.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// Returns the bytes of one saved model.
int64_t model_bytes(const RunPlan& plan) {
  const int64_t copied = plan.adapter ? 0 : model::copied_bytes(plan.spec);
  return plan.estimate.num_saved * zero::element_bytes(saved_dtype(plan)) + copied;
}

// Returns the maximum number of checkpoints that exist at once.
int64_t max_checkpoints(const RunPlan& plan) {
  if (!plan.saves_checkpoints()) return 0;
  const Intervals& intervals = plan.flags.intervals;
  const bool best = intervals.save.mode == Interval::Mode::kBest;
  // Count periodic saves and that of the last step; saves by the clock are unlimited.
  const int64_t saves =
      plan.flags.state.every_minutes && intervals.save_total_limit
          ? std::numeric_limits<int64_t>::max()
          : plan.trigger(best ? intervals.evaluate : intervals.save).num_before_end() + 1;
  // One more exists while the newest is not known to be good.
  const int64_t kept = intervals.save_total_limit
                           ? *intervals.save_total_limit + 1 + (intervals.ends_with_best ? 1 : 0)
                           : saves;
  return std::min(saves, kept);
}

std::vector<checkpoint::CheckpointInfo> existing_checkpoints(const fs::path& directory) {
  const auto file_system = checkpoint::PosixFileSystem::find(directory);
  if (!file_system) return {};
  return checkpoint::list_checkpoints(*file_system);
}

// Returns the bytes of existing checkpoints, whose room the run reuses as it saves.
int64_t existing_checkpoint_bytes(const std::string& output) {
  int64_t bytes = 0;
  for (const auto& found : existing_checkpoints(fs::path(output) / "checkpoints")) {
    if (__builtin_add_overflow(bytes, found.bytes, &bytes)) return INT64_MAX;
  }
  return bytes;
}

// Warns about what happens to the checkpoints of another run if this run starts from scratch in its
// directory.
void warn_about_earlier_checkpoints(const RunPlan& plan, configs::Diagnostics& notes) {
  if (plan.resume_plan) return;
  const auto directory = fs::path(plan.flags.output) / "checkpoints";
  const std::vector<checkpoint::CheckpointInfo> found = existing_checkpoints(directory);
  const checkpoint::CheckpointInfo* const newest = checkpoint::newest(found);
  if (newest == nullptr) return;
  warn(notes, "--output",
       "{} belongs to an earlier run: --resume would resume from it until this run has saved a "
       "checkpoint; rm -r {} removes {}",
       (directory / newest->name).string(), directory.string(),
       found.size() == 1 ? "it" : fmt::format("all {} there", found.size()));
}

// Returns the size of the largest file that the run writes there.
int64_t max_file_bytes(const RunPlan& plan) {
  const int64_t of_model = std::min(model_bytes(plan), model::kMaxShardBytes);
  const bool has_states = plan.saves_checkpoints() && !plan.flags.state.only_model;
  return std::max(of_model, has_states ? plan.estimate.state_bytes / plan.num_ranks : 0);
}

struct OutputSpace {
  int64_t model = 0, checkpoints = 0;  // bytes that will be written
  int64_t free = 0;
  int64_t needed() const { return model + checkpoints; }
  bool is_enough() const { return free >= needed(); }
};

// Returns nothing if the system does not report free space.
std::optional<OutputSpace> output_space(const RunPlan& plan) {
  const auto free = engine::free_disk_bytes(plan.flags.output);
  if (!free) return std::nullopt;
  OutputSpace space{.model = model_bytes(plan), .free = *free};
  const int64_t one = space.model + (plan.flags.state.only_model ? 0 : plan.estimate.state_bytes);
  space.checkpoints = max_checkpoints(plan) * one;
  if (space.checkpoints > 0 && !space.is_enough()) {  // otherwise existing ones do not matter
    space.checkpoints =
        std::max(one, space.checkpoints - existing_checkpoint_bytes(plan.flags.output));
  }
  return space;
}

std::string describe(const RunPlan& plan, const OutputSpace& space) {
  std::string parts = fmt::format("{} will be written", format_bytes(space.needed()));
  if (space.checkpoints > 0) {
    parts += fmt::format(" (the model {}, checkpoints {})", format_bytes(space.model),
                         format_bytes(space.checkpoints));
  }
  return fmt::format("--output {}: {} and {} are free there", plan.flags.output, parts,
                     format_bytes(space.free));
}

// Returns whether `directory` is missing and contains --output, so that it is created before
// --metrics is opened.
bool is_created_for(const fs::path& output, const fs::path& directory) {
  std::error_code unknown;
  if (output.empty() || fs::exists(directory, unknown)) return false;
  const auto below = fs::absolute(output, unknown).lexically_normal();
  const auto above = fs::absolute(directory, unknown).lexically_normal();
  const auto ends = std::mismatch(above.begin(), above.end(), below.begin(), below.end());
  return ends.first == above.end() && ends.second != below.end();
}

void copy_model(const fs::path& from, const fs::path& to, const OutputGuard& guard) {
  model::OutputDirectory directory(to, /*overwrite=*/true);
  model::with_path_errors([&] {
    for (const auto& entry : fs::directory_iterator(from)) {
      const fs::path name = entry.path().filename();
      if (model::is_model_file(name.string())) {
        fs::copy_file(entry.path(), directory.path() / name);
      }
    }
  });
  directory.commit(guard);
}

void take_over_checkpoints(const std::string& output) {
  const std::shared_ptr<checkpoint::FileSystem> file_system =
      checkpoint::PosixFileSystem::find(fs::path(output) / "checkpoints");
  if (file_system == nullptr) return;
  checkpoint::Owner::claim(file_system, checkpoint::describe_this_process());
  checkpoint::cleanup_leftovers(*file_system);
}

}  // namespace

torch::Dtype saved_dtype(const RunPlan& plan) {
  if (plan.adapter) return torch::kFloat;
  return plan.flags.save_dtype.value_or(zero::working_dtype(plan.config));
}

void add_output_warnings(const RunPlan& plan, configs::Diagnostics& notes) {
  if (const auto& steps = plan.flags.trace_steps; steps && steps->first > plan.samples.total_steps)
    warn(notes, "--trace-steps", "--trace-steps {}: none is traced, the run has {} steps",
         steps->first, plan.samples.total_steps);
  const std::string& output = plan.flags.output;
  const auto space = output_space(plan);
  if (space && !space->is_enough()) warn(notes, "--output", "{}", describe(plan, *space));
  warn_about_earlier_checkpoints(plan, notes);
  std::error_code unknown;
  if (!fs::is_directory(output, unknown)) return;
  for (const auto& entry : fs::directory_iterator(output)) {
    const std::string name = entry.path().filename().string();
    if (!is_step_directory(name)) continue;
    warn(notes, "--output", "{}/{} belongs to an earlier run and is kept", output, name);
  }
}

void require_disk_space(const RunPlan& plan) {
  if (plan.flags.output.empty() || plan.flags.eval_only || plan.attempt.index > 0) return;
  const int64_t largest = max_file_bytes(plan), limit = file_size_limit().value_or(largest);
  if (limit < largest) {
    throw Error(
        "--output {}: a file of {} will be written, and no process may write more than {} "
        "(ulimit -f)",
        plan.flags.output, format_bytes(largest), format_bytes(limit));
  }
  if (plan.flags.state.allow_small_disk) return;
  const auto space = output_space(plan);
  if (!space || space->is_enough()) return;
  throw Error(
      "{}. Free some space, {}or start with --allow-small-disk: then the model waits in memory "
      "for space.",
      describe(plan, *space),
      max_checkpoints(plan) > 2 ? "keep fewer checkpoints (--save_total_limit 1), " : "");
}

void require_writable(const RunPlan& plan) {
  const auto refuse = [](const std::string& flag, const fs::path& path, int reason) {
    throw Error("{} {}: cannot be written: {}", flag, path.string(), system_reason(reason));
  };
  const fs::path metrics = plan.flags.metrics, output = plan.flags.output;
  std::error_code unknown;
  if (fs::is_directory(metrics, unknown)) refuse("--metrics", metrics, EISDIR);
  if (!metrics.empty() && ::access(metrics.c_str(), W_OK) != 0) {
    const auto directory = metrics.has_parent_path() ? metrics.parent_path() : ".";
    const bool can_be_made = errno == ENOENT && (::access(directory.c_str(), W_OK | X_OK) == 0 ||
                                                 is_created_for(output, directory));
    if (!can_be_made) refuse("--metrics", metrics, errno);
  }
  if (output.empty() || plan.flags.eval_only) return;
  for (const fs::path& directory : {output, output / "checkpoints"}) {
    if (::access(directory.c_str(), W_OK | X_OK) != 0 && errno != ENOENT) {
      refuse("--output", directory, errno);
    }
  }
}

// Throws an Error on all ranks if one of them does not see a file that rank 0 has made beside the
// output. Its name is new to every machine: a network file system may have listed the folder
// before.
void require_shared(const fs::path& output, comm::DeviceMesh& mesh) {
  const bool writes = mesh.rank() == 0;
  const std::string token =
      comm::all_gather_strings(random_hex(8), "a name beside --output", mesh.cpu_group()).front();
  const fs::path probe = fs::path(fmt::format("{}.zeroth-shared-{}", output.string(), token));
  run_on_rank_0(mesh, [&] { replace_file(probe, ""); });
  const bool sees = ::access(probe.c_str(), F_OK) == 0;
  const auto hosts = comm::all_gather_strings(sees ? "" : machine_name(),
                                              "whether --output is shared", mesh.cpu_group());
  if (writes) ::unlink(probe.c_str());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank].empty()) continue;
    throw Error(
        "--output {}: rank {} (host {}) does not see what rank 0 writes there: checkpoints need a "
        "folder on a file system that all machines of the run share",
        output.string(), rank, hosts[rank]);
  }
}

std::unique_ptr<OutputLock> lock_output(const RunPlan& plan, comm::DeviceMesh& mesh) {
  const std::string& output = plan.flags.output;
  if (output.empty()) return nullptr;
  std::unique_ptr<OutputLock> lock;
  run_on_rank_0(mesh, [&] {
    lock =
        std::make_unique<OutputLock>(output, OutputAttempt{plan.attempt.run, plan.attempt.index});
    if (plan.attempt.resumes) take_over_checkpoints(output);
  });
  if (plan.saves_checkpoints() && mesh.nodes().size() > 1) require_shared(output, mesh);
  return lock;
}

std::string FinalModel::save(const std::string& suffix) {
  HfModelSink output({.source = plan_.flags.model,
                      .output = plan_.flags.output,
                      .chat_template = plan_.flags.records.chat_template,
                      .spec = plan_.spec,
                      .adapter = plan_.adapter,
                      .overwrite = plan_.flags.overwrite || plan_.resume_plan.has_value() ||
                                   plan_.attempt.resumes},
                     plan_.flags.save_dtype, guard_);
  const bool masters = saved_dtype(plan_) == torch::kFloat;
  engine_.save_model(output,
                     masters ? engine::SavedValues::kMasters : engine::SavedValues::kWorking);
  const std::optional<std::string> failure = output.finish(engine_.mesh().cpu_group());
  const std::string full = output.is_out_of_space() ? *failure : "";
  const std::string waits =
      comm::all_gather_strings(full, "whether the disk is full", engine_.mesh().cpu_group())
          .front();
  if (!waits.empty()) return waits;
  run_on_rank_0(engine_.mesh(), [&] {
    if (failure) throw Error("{}{}", *failure, suffix);
  });
  previous_ = output.take_previous();
  saved_ = true;
  return "";
}

bool FinalModel::has_disk_space() const {
  constexpr int64_t kMargin = int64_t{4} << 20;  // for the files beside the weights
  const auto free = engine::free_disk_bytes(plan_.flags.output);
  return !free || *free >= model_bytes(plan_) + kMargin;
}

std::string FinalModel::disk_space_text() const {
  const auto free = engine::free_disk_bytes(plan_.flags.output);
  return fmt::format("{} in {}{}", format_bytes(model_bytes(plan_)), plan_.flags.output,
                     free ? fmt::format(", where {} are free", format_bytes(*free)) : "");
}

void FinalModel::replace_with(const fs::path& directory) {
  run_on_rank_0(engine_.mesh(), [&] { copy_model(directory, plan_.flags.output, guard_); });
}

void FinalModel::roll_back(const std::string& why, const std::string& suffix) {
  run_on_rank_0(engine_.mesh(), [&] { throw Error("{}: {}{}", why, restore_previous(), suffix); });
}

std::string FinalModel::restore_previous() {
  if (!previous_) return "the model was already saved";
  try {
    if (guard_) guard_();
    const fs::path kept = previous_->restore();
    return fmt::format("the saved model is in {} now, and {} has the previous one again",
                       kept.string(), plan_.flags.output);
  } catch (const Error& error) {
    return fmt::format("the model was already saved; {}", error.what());
  }
}

void HfModelSink::run_unless_failed(const std::function<void()>& action) {
  if (failure_) return;
  try {
    model::with_path_errors(action);
  } catch (const Error& error) {
    failure_ = error.what();
    out_of_space_ = dynamic_cast<const model::OutOfSpace*>(&error) != nullptr;
    writer_.reset();  // deletes its temporary directory, too
  }
}

void HfModelSink::begin(const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) {
  ZEROTH_CHECK(!parameters.empty(), "a model of {} parameters", parameters.size());
  options_.dtype = dtype_.value_or(dtype);
  run_unless_failed([&] { writer_.emplace(options_, parameters); });
}

void HfModelSink::write(const std::string& name, const torch::Tensor& value) {
  run_unless_failed([&] { writer_->write(name, value); });
}

bool HfModelSink::join(const std::string& directory,
                       const std::vector<model::PlannedTensor>& parameters, torch::Dtype dtype) {
  options_.dtype = dtype_.value_or(dtype);
  const auto failure =
      checkpoint::capture_failure([&] { writer_.emplace(directory, options_, parameters); });
  return joined_ = !failure;
}

std::optional<std::string> HfModelSink::finish(comm::Group& group) {
  int64_t written = 0;
  run_unless_failed([&] {
    if (joined_) written = writer_->finish();
  });
  // "0 12 " or, after a failure, "1 0 reason", with 1 for a full disk.
  const std::string own =
      fmt::format("{} {} {}", out_of_space_ ? 1 : 0, written, failure_.value_or(""));
  const auto outcomes = comm::all_gather_strings(own, "outcomes of saving the model", group);
  if (group.rank() > 0) return failure_;
  written = 0;
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    std::istringstream words(outcomes[rank]);
    int full = 0;
    int64_t of_rank = 0;
    words >> full >> of_rank;
    written += of_rank;
    std::string reason;
    std::getline(words.ignore(), reason, '\0');
    if (reason.empty() || failure_) continue;
    failure_ = fmt::format("rank {}: {}", rank, reason);
    out_of_space_ = full == 1;
    writer_.reset();  // deletes its temporary directory, too
  }
  run_unless_failed([&] {
    if (writer_) previous_ = writer_->commit(guard_, written);
  });
  return failure_;
}

void run_on_rank_0(comm::DeviceMesh& mesh, const std::function<void()>& action) {
  const bool writes = mesh.rank() == 0;
  const auto failure = writes ? checkpoint::capture_failure(action) : std::nullopt;
  const std::string text =
      comm::all_gather_strings(failure.value_or(""), "rank 0's outcome", mesh.cpu_group()).front();
  if (!text.empty()) throw Error("{}{}", writes ? "" : "rank 0 failed: ", text);
}

}  // namespace zeroth::trainer
