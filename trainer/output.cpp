#include "trainer/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/process_limits.h"
#include "base/units.h"
#include "checkpoint/find.h"
#include "checkpoint/owner.h"
#include "checkpoint/real_disk.h"
#include "checkpoint/retention.h"
#include "comm/agreement.h"
#include "engine/free_space.h"
#include "model/hf/model_files.h"
#include "model/hf/model_layout.h"
#include "model/hf/temporary_folder.h"
#include "trainer/step_folder.h"

namespace zeroth::trainer {
namespace {

// Of one saved model.
int64_t model_bytes(const RunPlan& plan) {
  return plan.outline.num_parameters * static_cast<int64_t>(c10::elementSize(saved_dtype(plan)));
}

// Checkpoints that stand beside each other, at most.
int64_t most_checkpoints(const RunPlan& plan) {
  if (!plan.saves_checkpoints()) return 0;
  const Cadences& cadences = plan.flags.cadences;
  const bool best = cadences.save.at == Cadence::At::kBest;
  // Those on the way, that of the last step, and by the clock nobody knows how many.
  const int64_t saves =
      plan.flags.state.every_minutes && cadences.kept
          ? std::numeric_limits<int64_t>::max()
          : plan.occasions(best ? cadences.evaluate : cadences.save).on_the_way() + 1;
  // One more while the newest is not known to be good.
  const int64_t kept =
      cadences.kept ? *cadences.kept + 1 + (cadences.ends_with_best ? 1 : 0) : saves;
  return std::min(saves, kept);
}

// Of those that are already there, whose room the run uses again as it saves.
int64_t bytes_of_checkpoints(const std::string& output) {
  const auto disk = checkpoint::RealDisk::find(std::filesystem::path(output) / "checkpoints");
  int64_t bytes = 0;
  if (!disk) return bytes;
  for (const checkpoint::Found& found : checkpoint::list_checkpoints(*disk)) {
    if (__builtin_add_overflow(bytes, found.bytes, &bytes)) return INT64_MAX;
  }
  return bytes;
}

// Of a run that begins anew in a folder where another one has saved checkpoints: what becomes of
// them. Empty where there are none.
std::string earlier_checkpoints(const RunPlan& plan) {
  if (plan.resumed) return "";
  const auto folder = std::filesystem::path(plan.flags.output) / "checkpoints";
  const auto disk = checkpoint::RealDisk::find(folder);
  if (!disk) return "";
  const std::vector<checkpoint::Found> found = checkpoint::list_checkpoints(*disk);
  const checkpoint::Found* const newest = checkpoint::newest(found);
  if (newest == nullptr) return "";
  return fmt::format(
      "{} is of an earlier run: --resume would go on from it until this run has saved a "
      "checkpoint; "
      "rm -r {} removes {}",
      (folder / newest->name).string(), folder.string(),
      found.size() == 1 ? "it" : fmt::format("all {} there", found.size()));
}

// That the run writes there.
int64_t largest_file(const RunPlan& plan) {
  const int64_t of_model = std::min(model_bytes(plan), model::kMostShardBytes);
  const bool has_states = plan.saves_checkpoints() && !plan.flags.state.only_model;
  return std::max(of_model, has_states ? plan.outline.state_bytes / plan.num_ranks : 0);
}

struct Room {
  int64_t model = 0, checkpoints = 0;  // bytes that will be written
  int64_t free = 0;
  int64_t needed() const { return model + checkpoints; }
  bool is_enough() const { return free >= needed(); }
};

// Empty where the system does not report what is free.
std::optional<Room> room_of(const RunPlan& plan) {
  const auto free = engine::free_disk_bytes(plan.flags.output);
  if (!free) return std::nullopt;
  Room room{.model = model_bytes(plan), .free = *free};
  const int64_t one = room.model + (plan.flags.state.only_model ? 0 : plan.outline.state_bytes);
  room.checkpoints = most_checkpoints(plan) * one;
  if (room.checkpoints > 0 && !room.is_enough()) {  // else those that are there need no look
    room.checkpoints = std::max(one, room.checkpoints - bytes_of_checkpoints(plan.flags.output));
  }
  return room;
}

std::string describe(const RunPlan& plan, const Room& room) {
  std::string parts = fmt::format("{} will be written", format_bytes(room.needed()));
  if (room.checkpoints > 0) {
    parts += fmt::format(" (the model {}, checkpoints {})", format_bytes(room.model),
                         format_bytes(room.checkpoints));
  }
  return fmt::format("--output {}: {} and {} are free there", plan.flags.output, parts,
                     format_bytes(room.free));
}

// A folder above --output, which is made where it is missing before --metrics is opened.
bool is_made_for(const std::filesystem::path& output, const std::filesystem::path& folder) {
  std::error_code unknown;
  if (output.empty() || std::filesystem::exists(folder, unknown)) return false;
  const auto below = std::filesystem::absolute(output, unknown).lexically_normal();
  const auto above = std::filesystem::absolute(folder, unknown).lexically_normal();
  const auto ends = std::mismatch(above.begin(), above.end(), below.begin(), below.end());
  return ends.first == above.end() && ends.second != below.end();
}

void copy_model(const std::filesystem::path& from, const std::filesystem::path& to,
                const OutputGuard& guard) {
  model::OutputFolder folder(to, /*overwrite=*/true);
  model::naming_errors([&] {
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      const std::filesystem::path name = entry.path().filename();
      if (model::is_model_file(name.string())) {
        std::filesystem::copy_file(entry.path(), folder.path() / name);
      }
    }
  });
  folder.commit(guard);
}

void take_checkpoints_over(const std::string& output) {
  const std::shared_ptr<checkpoint::Disk> disk =
      checkpoint::RealDisk::find(std::filesystem::path(output) / "checkpoints");
  if (disk == nullptr) return;
  checkpoint::Owner::take(disk, checkpoint::this_process());
  checkpoint::clear_leftovers(*disk);
}

}  // namespace

torch::Dtype saved_dtype(const RunPlan& plan) {
  const configs::Precision precision = plan.config.precision;
  const torch::Dtype trained = precision == configs::Precision::kFp32   ? torch::kFloat32
                               : precision == configs::Precision::kBf16 ? torch::kBFloat16
                                                                        : torch::kFloat16;
  return plan.flags.save_dtype.value_or(trained);
}

std::vector<std::string> saving_warnings(const RunPlan& plan) {
  std::vector<std::string> warnings;
  const std::string& output = plan.flags.output;
  if (output.empty()) return warnings;
  const auto room = room_of(plan);
  if (room && !room->is_enough()) warnings.push_back(describe(plan, *room));
  if (const std::string earlier = earlier_checkpoints(plan); !earlier.empty())
    warnings.push_back(earlier);
  std::error_code unknown;
  if (std::filesystem::is_directory(output, unknown)) {
    for (const auto& entry : std::filesystem::directory_iterator(output)) {
      const std::string name = entry.path().filename().string();
      if (!is_step_folder(name)) continue;
      warnings.push_back(fmt::format("{}/{} is of an earlier run and stays", output, name));
    }
  }
  return warnings;
}

void require_room(const RunPlan& plan) {
  if (plan.flags.output.empty() || plan.flags.eval_only || plan.round.number > 0) return;
  const int64_t largest = largest_file(plan), limit = file_size_limit().value_or(largest);
  if (limit < largest) {
    throw Error(
        "--output {}: a file of {} will be written, and no process may write more than {} "
        "(ulimit -f)",
        plan.flags.output, format_bytes(largest), format_bytes(limit));
  }
  if (plan.flags.state.small_disk) return;
  const auto room = room_of(plan);
  if (!room || room->is_enough()) return;
  throw Error(
      "{}. Make room, {}or start with --allow-small-disk: then the model waits in memory "
      "for room.",
      describe(plan, *room),
      most_checkpoints(plan) > 2 ? "keep fewer checkpoints (--save_total_limit 1), " : "");
}

void require_writable(const RunPlan& plan) {
  const auto refuse = [](const std::string& flag, const std::filesystem::path& path, int reason) {
    throw Error("{} {}: cannot be written: {}", flag, path.string(), system_reason(reason));
  };
  const std::filesystem::path metrics = plan.flags.metrics, output = plan.flags.output;
  std::error_code unknown;
  if (std::filesystem::is_directory(metrics, unknown)) refuse("--metrics", metrics, EISDIR);
  if (!metrics.empty() && ::access(metrics.c_str(), W_OK) != 0) {
    const auto folder = metrics.has_parent_path() ? metrics.parent_path() : ".";
    const bool can_be_made = errno == ENOENT && (::access(folder.c_str(), W_OK | X_OK) == 0 ||
                                                 is_made_for(output, folder));
    if (!can_be_made) refuse("--metrics", metrics, errno);
  }
  if (output.empty() || plan.flags.eval_only) return;
  for (const std::filesystem::path& folder : {output, output / "checkpoints"}) {
    if (::access(folder.c_str(), W_OK | X_OK) != 0 && errno != ENOENT) {
      refuse("--output", folder, errno);
    }
  }
}

std::unique_ptr<OutputLock> lock_output(const RunPlan& plan, comm::Mesh& mesh) {
  const std::string& output = plan.flags.output;
  if (output.empty()) return nullptr;
  std::unique_ptr<OutputLock> lock;
  std::optional<std::string> complaint;
  try {
    if (mesh.rank() == 0) lock = std::make_unique<OutputLock>(output, plan.output_round());
    if (lock && plan.round.goes_on) take_checkpoints_over(output);
  } catch (const Error& error) {
    complaint = error.what();
  }
  throw_if_rank_0_failed(mesh, complaint);
  return lock;
}

std::string FinalModel::save(const std::string& more) {
  HfOutput output(
      {.source = plan_.flags.model,
       .output = plan_.flags.output,
       .spec = plan_.spec,
       .overwrite = plan_.flags.overwrite || plan_.resumed.has_value() || plan_.round.goes_on},
      plan_.flags.save_dtype, guard_);
  const bool masters = plan_.flags.save_dtype == torch::kFloat32;
  engine_.save_model(output,
                     masters ? engine::SavedValues::kMasters : engine::SavedValues::kWorking);
  std::optional<std::string> complaint = output.finish();
  const std::string full = output.is_out_of_space() ? *complaint : "";
  const std::string waits =
      comm::gather_texts(full, "whether the disk is full", engine_.mesh().host()).front();
  if (!waits.empty()) return waits;
  if (complaint) *complaint += more;
  throw_if_rank_0_failed(engine_.mesh(), complaint);
  former_ = output.take_former();
  saved_ = true;
  return "";
}

bool FinalModel::has_room() const {
  constexpr int64_t kMargin = int64_t{4} << 20;  // of what lies beside the weights
  const auto free = engine::free_disk_bytes(plan_.flags.output);
  return !free || *free >= model_bytes(plan_) + kMargin;
}

std::string FinalModel::room_text() const {
  const auto free = engine::free_disk_bytes(plan_.flags.output);
  return fmt::format("{} in {}{}", format_bytes(model_bytes(plan_)), plan_.flags.output,
                     free ? fmt::format(", where {} are free", format_bytes(*free)) : "");
}

void FinalModel::replace_by(const std::filesystem::path& folder) {
  std::optional<std::string> complaint;
  try {
    if (engine_.mesh().rank() == 0) {
      copy_model(folder, plan_.flags.output, guard_);
    }
  } catch (const Error& error) {
    complaint = error.what();
  }
  throw_if_rank_0_failed(engine_.mesh(), complaint);
}

void FinalModel::withdraw(const std::string& why, const std::string& more) {
  std::optional<std::string> complaint;
  if (engine_.mesh().rank() == 0) complaint = why + ": " + put_back_former() + more;
  throw_if_rank_0_failed(engine_.mesh(), complaint);
}

std::string FinalModel::put_back_former() {
  if (!former_) return "the model was saved before";
  try {
    if (guard_) guard_();
    const std::filesystem::path kept = former_->put_back();
    return fmt::format("the model that was saved before is in {} now, and {} holds the former one",
                       kept.string(), plan_.flags.output);
  } catch (const Error& error) {
    return fmt::format("the model was saved before; {}", error.what());
  }
}

template <typename Action>
void HfOutput::unless_failed(Action action) {
  if (failure_) return;
  try {
    model::naming_errors(action);
  } catch (const Error& error) {
    failure_ = error.what();
    out_of_space_ = dynamic_cast<const model::OutOfSpace*>(&error) != nullptr;
    writer_.reset();  // and its temporary folder
  }
}

void HfOutput::begin(const std::vector<engine::ParameterInfo>& parameters) {
  ZEROTH_CHECK(!parameters.empty(), "a model of {} parameters", parameters.size());
  std::vector<model::PlannedTensor> saved;
  for (const engine::ParameterInfo& parameter : parameters) {
    saved.push_back({parameter.name, parameter.shape});
  }
  options_.dtype = dtype_.value_or(parameters.front().dtype);
  unless_failed([&] { writer_.emplace(options_, saved); });
}

void HfOutput::write(const std::string& name, const torch::Tensor& value) {
  unless_failed([&] { writer_->write(name, value); });
}

std::optional<std::string> HfOutput::finish() {
  unless_failed([&] {
    if (!writer_) return;
    former_ = writer_->commit(guard_);
  });
  return failure_;
}

void throw_if_rank_0_failed(comm::Mesh& mesh, const std::optional<std::string>& complaint) {
  const bool writes = mesh.rank() == 0;
  const std::string own = writes ? complaint.value_or("") : "";
  const std::string text = comm::gather_texts(own, "rank 0's outcome", mesh.host()).front();
  if (!text.empty()) throw Error("{}{}", writes ? "" : "rank 0 failed: ", text);
}

}  // namespace zeroth::trainer
