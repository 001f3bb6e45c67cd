#include "trainer/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/units.h"
#include "model/blocks/build.h"
#include "model/hf/temporary_folder.h"
#include "trainer/agreement.h"
#include "trainer/hf_output.h"

namespace zeroth::trainer {
namespace {

constexpr std::string_view kStep = "step-";

torch::Dtype saved_dtype(const RunPlan& plan) {
  const configs::Precision precision = plan.config.precision;
  const torch::Dtype trained = precision == configs::Precision::kFp32   ? torch::kFloat32
                               : precision == configs::Precision::kBf16 ? torch::kBFloat16
                                                                        : torch::kFloat16;
  return plan.flags.save_dtype.value_or(trained);
}

// Of one saved model; a tied weight counts once.
int64_t model_bytes(const RunPlan& plan) {
  std::set<const void*> seen;
  int64_t elements = 0;
  for (const auto& block : model::build_blocks(plan.spec)) {
    for (const torch::Tensor& parameter : block->parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) elements += parameter.numel();
    }
  }
  return elements * static_cast<int64_t>(c10::elementSize(saved_dtype(plan)));
}

// Where the output is, or the nearest folder above it that there is.
std::filesystem::path existing_part(const std::string& output) {
  std::filesystem::path place = std::filesystem::absolute(output);
  while (!std::filesystem::exists(place)) place = place.parent_path();
  return place;
}

}  // namespace

bool is_step_folder(const std::string& name) {
  return name.starts_with(kStep) && name.size() > kStep.size() &&
         std::all_of(name.begin() + kStep.size(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<std::string> saving_warnings(const RunPlan& plan) {
  std::vector<std::string> warnings;
  const std::string& output = plan.flags.output;
  if (output.empty()) return warnings;
  const std::filesystem::path place = existing_part(output);
  // At the end the final model stands beside those on the way.
  const int64_t models = plan.flags.save_every ? 1 + static_cast<int64_t>(Checkpoints::kKept) : 1;
  const int64_t needed = models * model_bytes(plan);
  std::error_code unknown;
  const auto space = std::filesystem::space(place, unknown);
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

bool Checkpoints::due(int64_t step) const {
  const auto& every = plan_.flags.save_every;
  return every && step % *every == 0 && step != plan_.samples.total_steps;
}

std::filesystem::path Checkpoints::save_step(int64_t step) {
  const std::filesystem::path folder =
      std::filesystem::path(plan_.flags.output) / fmt::format("{}{}", kStep, step);
  save(folder, /*overwrite=*/true);
  unconfirmed_.push_back(folder);
  return folder;
}

void Checkpoints::confirm() {
  if (unconfirmed_.empty()) return;
  good_.insert(good_.end(), unconfirmed_.begin(), unconfirmed_.end());
  unconfirmed_.clear();
  std::optional<std::string> complaint;
  while (good_.size() > kKept) {
    const std::filesystem::path oldest = good_.front();
    good_.pop_front();
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

}  // namespace zeroth::trainer
