#include "trainer/occasions.h"

#include <algorithm>
#include <cmath>

namespace zeroth::trainer {

using At = Cadence::At;

Occasions::Occasions(const Cadence& cadence, const RunLength& length)
    : cadence_(cadence), length_(length) {
  if (cadence.at != At::kSteps) return;
  const bool ratio = cadence.every < 1;
  const double steps =
      ratio ? std::ceil(static_cast<double>(length.steps) * cadence.every) : cadence.every;
  every_ = std::max<int64_t>(1, static_cast<int64_t>(steps));
}

bool Occasions::at(int64_t step) const {
  if (cadence_.at == At::kSteps) {
    return step % every_ == 0 && cadence_.from <= static_cast<double>(step);
  }
  if (cadence_.at != At::kEpochs || length_.epoch_positions == 0) return false;
  const int64_t done = epochs(step);
  return done > epochs(step - 1) && cadence_.from <= static_cast<double>(done);
}

int64_t Occasions::on_the_way() const {
  const int64_t before_end = std::max<int64_t>(0, length_.steps - 1);
  if (cadence_.at == At::kSteps) return before_end / every_;
  return cadence_.at == At::kEpochs && length_.epoch_positions > 0 ? epochs(before_end) : 0;
}

}  // namespace zeroth::trainer
