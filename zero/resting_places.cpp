#include "zero/resting_places.h"

#include <algorithm>
#include <numeric>

namespace zeroth::zero {
namespace {

using configs::RestingPlace;

// `first` for the units in forward order that hold at most `elements` together, `rest` for those
// behind them.
std::vector<RestingPlace> split(const std::vector<int64_t>& numels, double elements,
                                RestingPlace first, RestingPlace rest) {
  std::vector<RestingPlace> places;
  double sum = 0;
  for (const int64_t numel : numels) {
    sum += static_cast<double>(numel);
    places.push_back(sum <= elements ? first : rest);
  }
  return places;
}

int64_t largest_in_file(const std::vector<int64_t>& numels,
                        const std::vector<RestingPlace>& places) {
  int64_t largest = 0;
  for (size_t unit = 0; unit < numels.size(); ++unit) {
    if (places[unit] == RestingPlace::kNvme) largest = std::max(largest, numels[unit]);
  }
  return largest;
}

}  // namespace

int64_t RestingPlaces::largest_update_in_file() const {
  return largest_in_file(updated, updates);
}

int64_t RestingPlaces::largest_parameters_in_file() const {
  return largest_in_file(released, parameters);
}

RestingPlaces resting_places(const UnitPlan& plan, const configs::ZeroConfig& zero) {
  RestingPlaces places;
  for (const Unit& unit : plan.units) {
    places.updated.push_back(unit.trainable ? unit.share_numel() : 0);
    places.released.push_back(unit.released() ? unit.share_numel() : 0);
  }
  const double all = std::accumulate(places.updated.begin(), places.updated.end(), 0.0);
  places.updates = split(places.updated, (1 - zero.offload_optimizer.ratio) * all,
                         RestingPlace::kDevice, zero.offload_optimizer.device);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (places.updated[unit] == 0) places.updates[unit] = RestingPlace::kDevice;
  }
  const configs::OffloadParamConfig& params = zero.offload_param;
  const bool file = params.device == RestingPlace::kNvme;
  places.parameters =
      split(places.released, file ? static_cast<double>(params.max_in_cpu_elements) : 0,
            file ? RestingPlace::kCpu : params.device, params.device);
  return places;
}

}  // namespace zeroth::zero
