#include "trainer/report/mfu_meter.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/cpu_collectives.h"
#include "model/flops.h"
#include "model/kernels/matrix_peak.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// Returns -infinity if the device is too full for the measurement: the sum over ranks is unknown
// then.
double local_peak(configs::Precision precision, torch::Device device) {
  try {
    return model::measure_matrix_peak(zero::torch_dtype(precision), device);
  } catch (const c10::OutOfMemoryError&) {
    return -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

MfuMeter::MfuMeter(model::ModelSpec spec, int64_t rows) : spec_(std::move(spec)), rows_(rows) {}

void MfuMeter::measure(configs::Precision precision, comm::DeviceMesh& mesh) {
  double sum = local_peak(precision, mesh.device());
  comm::all_reduce_values({&sum, 1}, comm::ReduceOp::kSum, "matrix peaks", mesh);
  peak_ = std::max(0.0, sum);
}

double MfuMeter::flops(const engine::StepStats& stats) const {
  const std::vector<double> forward =
      model::block_flops_per_token(spec_, std::max<int64_t>(1, stats.tokens / rows_));
  const double head = forward.back();
  const double body = std::accumulate(forward.begin(), forward.end(), 0.0) - head;
  return 3 * (body * static_cast<double>(stats.tokens) +
              head * static_cast<double>(stats.num_label_tokens));
}

double MfuMeter::measure_step(const engine::StepStats& stats, double seconds) {
  const double rate = flops(stats) / seconds;
  if (rate > peak_) peak_ = 0;
  return peak_ == 0 ? std::numeric_limits<double>::quiet_NaN() : rate / peak_;
}

}  // namespace zeroth::trainer
