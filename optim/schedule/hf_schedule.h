// The rates of Hugging Face's schedules, except for the one that follows evaluations (plateau.h).
#pragma once

#include <cstdint>

#include "configs/hf_schedule.h"

namespace zeroth::optim {

// Returns the rate of update `update`, counted from 0, with the optimizer's rate `lr`:
// transformers' LambdaLR, by its formulas, bit for bit except for the library's cosine.
double hf_lr(const configs::HfSchedule& schedule, double lr, int64_t update);

}  // namespace zeroth::optim
