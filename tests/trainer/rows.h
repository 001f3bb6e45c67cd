// A step as the tests of metrics and progress need it.
#pragma once

#include "trainer/report/metrics.h"

namespace zeroth::trainer {

inline StepRow sample_row(int64_t step, double step_s = 0.5, double since_start_s = 0) {
  StepRow row;
  row.stats.step = step;
  row.stats.loss = 2.5;
  row.stats.grad_norm = 1.25;
  row.stats.lr = 5e-5;
  row.stats.next_lr = 4e-5;
  row.stats.next_betas = {0.9, 0.95};
  row.stats.tokens = 1000;
  row.stats.num_label_tokens = 700;
  row.stats.times = {
      .data = 0.001, .forward = 0.2, .backward = 0.25, .reduce = 0.03, .update = 0.004};
  row.step_s = step_s;
  row.since_start_s = since_start_s;
  row.peak = {.rss_mib = 512.5, .gpu_mib = 0};
  return row;
}

}  // namespace zeroth::trainer
