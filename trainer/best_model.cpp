#include "trainer/best_model.h"

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

}  // namespace zeroth::trainer
