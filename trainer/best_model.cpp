#include "trainer/best_model.h"

namespace zeroth::trainer {

bool BestModel::evaluated(int64_t step, double loss) {
  const bool better = !loss_ ? loss == loss : greater_ ? loss > *loss_ : loss < *loss_;
  if (!tracked_ || !better) return false;
  loss_ = loss;
  step_ = step;
  return true;
}

void BestModel::saved(int64_t step, const std::filesystem::path& folder) {
  if (step_ != step) return;
  folder_ = folder;
  saved_step_ = step;
}

}  // namespace zeroth::trainer
