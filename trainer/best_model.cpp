#include "trainer/best_model.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "checkpoint/find.h"
#include "checkpoint/posix_file_system.h"
#include "trainer/report/history.h"

namespace zeroth::trainer {
namespace {

// Returns the steps of complete checkpoints with a model, and their paths.
std::map<int64_t, std::filesystem::path> models_in(
    const std::vector<std::filesystem::path>& directories) {
  std::map<int64_t, std::filesystem::path> models;
  for (const std::filesystem::path& directory : directories) {
    const auto file_system = checkpoint::PosixFileSystem::find(directory);
    if (!file_system) continue;
    for (const checkpoint::CheckpointInfo& found : checkpoint::list_checkpoints(*file_system)) {
      if (found.complete()) models.emplace(found.step, directory / found.name);
    }
  }
  return models;
}

}  // namespace

bool BestModel::is_better(double loss) const {
  return !state_.loss || (greater_ ? loss > *state_.loss : loss < *state_.loss);
}

bool BestModel::observe_evaluation(int64_t step, double loss) {
  if (!tracked_ || std::isnan(loss) || !is_better(loss)) return false;
  state_.loss = loss;
  state_.step = step;
  return true;
}

void BestModel::observe_checkpoint(int64_t step, const std::filesystem::path& directory) {
  if (state_.step != step) return;
  state_.directory = directory;
  state_.saved_step = step;
}

std::string BestModel::locate(const std::vector<std::filesystem::path>& directories, int64_t step,
                              const std::string& history) {
  const auto models = models_in(directories);
  const int64_t saved = state_.saved_step.value_or(0);
  if (const auto there = models.find(saved); there != models.end()) {
    state_.directory = there->second;
    return "";
  }
  const std::string gone =
      fmt::format("{} is missing, which had the best model so far",
                  (directories.front() / checkpoint::step_name(saved)).string());
  state_ = {};
  for (const auto& [evaluated, loss] : eval_losses(history)) {
    const auto model = models.find(evaluated);
    if (model == models.end() || evaluated > step || !is_better(loss)) continue;
    state_ = {loss, evaluated, evaluated, model->second};
  }
  if (!state_.step) return gone + "; the best of the later models is used, or else the last one";
  return fmt::format("{}; of the remaining ones {} is the best, with a loss of {:.4f}", gone,
                     state_.directory.string(), *state_.loss);
}

}  // namespace zeroth::trainer
