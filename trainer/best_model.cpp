#include "trainer/best_model.h"

#include <fmt/format.h>

#include <map>

#include "checkpoint/find.h"
#include "checkpoint/real_disk.h"
#include "trainer/report/history.h"

namespace zeroth::trainer {

bool BestModel::evaluated(int64_t step, double loss) {
  const bool better = !state_.loss ? loss == loss
                      : greater_   ? loss > *state_.loss
                                   : loss < *state_.loss;
  if (!tracked_ || !better) return false;
  state_.loss = loss;
  state_.step = step;
  return true;
}

void BestModel::saved(int64_t step, const std::filesystem::path& folder) {
  if (state_.step != step) return;
  state_.folder = folder;
  state_.saved_step = step;
}

namespace {

// Steps of complete checkpoints with a model, and where they are.
std::map<int64_t, std::filesystem::path> models_in(
    const std::vector<std::filesystem::path>& folders) {
  std::map<int64_t, std::filesystem::path> models;
  for (const std::filesystem::path& folder : folders) {
    const auto disk = checkpoint::RealDisk::find(folder);
    if (!disk) continue;
    for (const checkpoint::Found& found : checkpoint::list_checkpoints(*disk)) {
      if (found.complete()) models.emplace(found.step, folder / found.name);
    }
  }
  return models;
}

}  // namespace

FoundBest find_best(const WantedBest& wanted, const std::string& history) {
  const auto models = models_in(wanted.folders);
  const int64_t step = wanted.wanted.saved_step.value_or(0);
  BestModel::State state = wanted.wanted;
  if (const auto there = models.find(step); there != models.end()) {
    state.folder = there->second;
    return {state};
  }
  const std::string gone =
      fmt::format("{} is gone, which held the best model so far",
                  (wanted.folders.front() / checkpoint::step_name(step)).string());
  state = {};
  for (const auto& [evaluated, loss] : eval_losses(history)) {
    const auto model = models.find(evaluated);
    if (model == models.end() || evaluated > wanted.step) continue;
    const bool better =
        !state.loss || (wanted.greater_is_better ? loss > *state.loss : loss < *state.loss);
    if (better) state = {loss, evaluated, evaluated, model->second};
  }
  if (!state.step)
    return {state, gone + ": the best of the models that follow counts, or the last"};
  return {state, fmt::format("{}: of those that are there {} is the best, with a loss of {:.4f}",
                             gone, state.folder.string(), *state.loss)};
}

}  // namespace zeroth::trainer
