#include "trainer/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/units.h"
#include "model/hf/model_files.h"
#include "model/hf/temporary_folder.h"
#include "trainer/step_folder.h"

namespace zeroth::trainer {
namespace {

torch::Dtype saved_dtype(const RunPlan& plan) {
  const configs::Precision precision = plan.config.precision;
  const torch::Dtype trained = precision == configs::Precision::kFp32   ? torch::kFloat32
                               : precision == configs::Precision::kBf16 ? torch::kBFloat16
                                                                        : torch::kFloat16;
  return plan.flags.save_dtype.value_or(trained);
}

// Of one saved model.
int64_t model_bytes(const RunPlan& plan) {
  return plan.outline.num_parameters * static_cast<int64_t>(c10::elementSize(saved_dtype(plan)));
}

// Where the output is, or the nearest folder above it that there is.
std::filesystem::path existing_part(const std::string& output) {
  std::filesystem::path folder = std::filesystem::absolute(output);
  while (!std::filesystem::exists(folder)) folder = folder.parent_path();
  return folder;
}

// That stand beside each other when the final one is there, at most.
int64_t most_models(const RunPlan& plan) {
  const Cadences& cadences = plan.flags.cadences;
  const bool best = cadences.save.at == Cadence::At::kBest;
  const int64_t saves = plan.occasions(best ? cadences.evaluate : cadences.save).on_the_way();
  const int64_t kept = cadences.kept.value_or(saves) + (cadences.ends_with_best ? 1 : 0);
  return 1 + std::min(saves, kept);
}

}  // namespace

std::vector<std::string> saving_warnings(const RunPlan& plan) {
  std::vector<std::string> warnings;
  const std::string& output = plan.flags.output;
  if (output.empty()) return warnings;
  const int64_t needed = most_models(plan) * model_bytes(plan);
  std::error_code unknown;
  const auto space = std::filesystem::space(existing_part(output), unknown);
  if (!unknown && static_cast<int64_t>(space.available) < needed) {
    warnings.push_back(fmt::format("--output {}: {} will be written and {} are free there", output,
                                   format_bytes(needed),
                                   format_bytes(static_cast<int64_t>(space.available))));
  }
  if (std::filesystem::is_directory(output, unknown)) {
    for (const auto& entry : std::filesystem::directory_iterator(output)) {
      const std::string name = entry.path().filename().string();
      if (!is_step_folder(name)) continue;
      warnings.push_back(fmt::format("{}/{} is of an earlier run and stays", output, name));
    }
  }
  return warnings;
}

std::unique_ptr<model::OutputLock> lock_output(const RunPlan& plan, comm::Mesh& mesh) {
  const std::string& output = plan.flags.output;
  if (output.empty()) return nullptr;
  std::unique_ptr<model::OutputLock> lock;
  std::optional<std::string> complaint;
  try {
    if (mesh.rank() == 0) lock = std::make_unique<model::OutputLock>(output);
  } catch (const Error& error) {
    complaint = error.what();
  }
  throw_if_rank_0_failed(mesh, complaint);
  return lock;
}

Checkpoints::Checkpoints(const RunPlan& plan, engine::Engine& engine)
    : plan_(plan),
      engine_(engine),
      occasions_(plan.occasions(plan.flags.cadences.save)),
      best_(plan.flags.cadences) {}

bool Checkpoints::due(int64_t step) const {
  if (step == plan_.samples.total_steps) return false;
  const bool best = plan_.flags.cadences.save.at == Cadence::At::kBest;
  return best ? best_.step() == step : occasions_.at(step);
}

std::filesystem::path Checkpoints::save_step(int64_t step) {
  const std::filesystem::path folder =
      std::filesystem::path(plan_.flags.output) / step_folder(step, plan_.flags.values.for_trainer);
  save(folder, /*overwrite=*/true);
  best_.saved(step, folder);
  unconfirmed_.push_back(folder);
  return folder;
}

void Checkpoints::confirm() {
  if (unconfirmed_.empty()) return;
  good_.insert(good_.end(), unconfirmed_.begin(), unconfirmed_.end());
  unconfirmed_.clear();
  std::optional<std::string> complaint;
  while (good_.size() > most_kept()) {
    const auto found = std::find_if(good_.begin(), good_.end(),
                                    [&](const auto& folder) { return folder != best_.folder(); });
    const std::filesystem::path oldest = *found;
    good_.erase(found);
    try {
      if (engine_.mesh().rank() == 0) model::remove_folder(oldest);
    } catch (const Error& error) {
      complaint = error.what();
    }
  }
  throw_if_rank_0_failed(engine_.mesh(), complaint);
}

std::string Checkpoints::newest_good() const {
  return good_.empty() ? "" : fmt::format("; the newest good model is {}", good_.back().string());
}

// The best one is kept beside the newest, whatever their number is to be.
size_t Checkpoints::most_kept() const {
  const auto& kept = plan_.flags.cadences.kept;
  if (!kept) return good_.size();
  const bool best_is_old = !best_.folder().empty() && best_.folder() != good_.back();
  return std::max<size_t>(static_cast<size_t>(*kept), best_is_old ? 2 : 1);
}

std::string Checkpoints::place_best() {
  if (!plan_.flags.cadences.ends_with_best || best_.step() == plan_.samples.total_steps) return "";
  if (!best_.saved_step()) return "the best model was not saved: the last one stays";
  std::optional<std::string> complaint;
  try {
    if (engine_.mesh().rank() == 0) copy_best();
  } catch (const Error& error) {
    complaint = error.what();
  }
  throw_if_rank_0_failed(engine_.mesh(), complaint);
  placed_step_ = best_.saved_step();
  return fmt::format("{} holds the best model now, that of {}", plan_.flags.output,
                     best_.folder().string());
}

void Checkpoints::copy_best() const {
  model::OutputFolder folder(plan_.flags.output, /*overwrite=*/true);
  model::naming_errors([&] {
    for (const auto& entry : std::filesystem::directory_iterator(best_.folder())) {
      const std::filesystem::path name = entry.path().filename();
      if (model::is_model_file(name.string())) {
        std::filesystem::copy_file(entry.path(), folder.path() / name);
      }
    }
  });
  folder.commit();
}

void Checkpoints::save_final() {
  former_ = save(plan_.flags.output, plan_.flags.overwrite);
  saved_final_ = true;
}

void Checkpoints::withdraw_final(const std::string& why) {
  std::optional<std::string> complaint;
  if (engine_.mesh().rank() == 0) complaint = why + ": " + put_back_former() + newest_good();
  throw_if_rank_0_failed(engine_.mesh(), complaint);
}

std::string Checkpoints::put_back_former() {
  if (!former_) return "the model was saved before";
  try {
    const std::filesystem::path kept = former_->put_back();
    return fmt::format("the model that was saved before is in {} now, and {} holds the former one",
                       kept.string(), plan_.flags.output);
  } catch (const Error& error) {
    return fmt::format("the model was saved before; {}", error.what());
  }
}

std::unique_ptr<model::FormerModel> Checkpoints::save(const std::filesystem::path& folder,
                                                      bool overwrite) {
  HfOutput output(
      {.source = plan_.flags.model, .output = folder, .spec = plan_.spec, .overwrite = overwrite},
      plan_.flags.save_dtype);
  const bool masters = plan_.flags.save_dtype == torch::kFloat32;
  engine_.save_model(output,
                     masters ? engine::SavedValues::kMasters : engine::SavedValues::kWorking);
  std::optional<std::string> complaint = output.finish();
  if (complaint) *complaint += newest_good();
  throw_if_rank_0_failed(engine_.mesh(), complaint);
  return output.take_former();
}

template <typename Action>
void HfOutput::unless_failed(Action action) {
  if (failure_) return;
  try {
    model::naming_errors(action);
  } catch (const Error& error) {
    failure_ = error.what();
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
    if (writer_) former_ = writer_->commit();
  });
  return failure_;
}

void throw_if_rank_0_failed(comm::Mesh& mesh, const std::optional<std::string>& complaint) {
  const bool writes = mesh.rank() == 0;
  const std::string own = writes ? complaint.value_or("") : "";
  const int64_t length = comm::greatest_over_ranks(std::ssize(own), "rank 0's outcome", mesh);
  if (length == 0) return;
  torch::Tensor bytes = torch::zeros({length}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), own.data(), own.size());
  bytes = bytes.to(mesh.device());
  mesh.data().broadcast(bytes, 0, "what failed").wait();
  bytes = bytes.to(torch::kCPU);
  const std::string text(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(length));
  throw Error("{}{}", writes ? "" : "rank 0 failed: ", text);
}

}  // namespace zeroth::trainer
