#include "trainer/best_model.h"

#include <fmt/format.h>

#include <map>

#include "checkpoint/find.h"
#include "checkpoint/posix_file_system.h"
#include "trainer/report/history.h"

namespace zeroth::trainer {

bool BestModel::observe_evaluation(int64_t step, double loss) {
  const bool better = !state_.loss ? loss == loss
                      : greater_   ? loss > *state_.loss
                                   : loss < *state_.loss;
  if (!tracked_ || !better) return false;
  state_.loss = loss;
  state_.step = step;
  return true;
}

void BestModel::observe_checkpoint(int64_t step, const std::filesystem::path& directory) {
  if (state_.step != step) return;
  state_.directory = directory;
  state_.saved_step = step;
}

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

BestModelResult find_best_model(const BestModelQuery& query, const std::string& history) {
  const auto models = models_in(query.directories);
  const int64_t step = query.previous.saved_step.value_or(0);
  BestModel::TrackedState state = query.previous;
  if (const auto there = models.find(step); there != models.end()) {
    state.directory = there->second;
    return {state};
  }
  const std::string gone =
      fmt::format("{} is missing, which had the best model so far",
                  (query.directories.front() / checkpoint::step_name(step)).string());
  state = {};
  for (const auto& [evaluated, loss] : eval_losses(history)) {
    const auto model = models.find(evaluated);
    if (model == models.end() || evaluated > query.step) continue;
    const bool better =
        !state.loss || (query.greater_is_better ? loss > *state.loss : loss < *state.loss);
    if (better) state = {loss, evaluated, evaluated, model->second};
  }
  if (!state.step)
    return {state, gone + "; the best of the later models is used, or else the last one"};
  return {state, fmt::format("{}; of the remaining ones {} is the best, with a loss of {:.4f}",
                             gone, state.directory.string(), *state.loss)};
}

}  // namespace zeroth::trainer
