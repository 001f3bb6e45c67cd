// Where each unit's share of a rank rests between uses, as the configuration asks for it. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/config.h"
#include "zero/unit.h"

namespace zeroth::zero {

struct RestingPlaces {
  // [unit]: elements of one rank's share; 0 of what is not trained, or not released between uses.
  std::vector<int64_t> updated;
  std::vector<int64_t> released;
  // [unit]: of masters and optimizer states. The first units in forward order, as far as
  // offload_optimizer.ratio leaves them, stay on the device; so do those that have none.
  std::vector<configs::RestingPlace> updates;
  // [unit]: of released parameters. With kNvme the first units in forward order, as far as
  // offload_param.max_in_cpu allows, rest in host memory.
  std::vector<configs::RestingPlace> parameters;

  // Elements of the largest share that rests in a file.
  int64_t largest_update_in_file() const;
  int64_t largest_parameters_in_file() const;
};

RestingPlaces resting_places(const UnitPlan& plan, const configs::ZeroConfig& zero);

}  // namespace zeroth::zero
