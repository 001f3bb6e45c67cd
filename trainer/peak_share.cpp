#include "trainer/peak_share.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "model/flops.h"
#include "model/matrix_peak.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// A device that is too full for the measurement has none: then nobody has.
double own_peak(configs::Precision precision, torch::Device device) {
  const torch::Dtype working = zero::dtype_of(precision);
  try {
    const double fp32 = model::measure_matrix_peak(torch::kFloat, device);
    if (working == torch::kFloat) return fp32;
    return std::max(fp32, model::measure_matrix_peak(working, device));
  } catch (const c10::OutOfMemoryError&) {
    return -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

PeakShare::PeakShare(const model::ModelSpec& spec, int64_t seq_len)
    : flops_per_token_(model::flops_per_token(spec, seq_len)) {}

void PeakShare::measure(configs::Precision precision, comm::Mesh& mesh) {
  const double own = own_peak(precision, mesh.device());
  const auto sum = torch::tensor({own}, torch::dtype(torch::kFloat64).device(mesh.device()));
  mesh.data().all_reduce(sum, comm::Reduce::kSum, "matrix peaks").wait();
  peak_ = std::max(0.0, sum.item<double>());
}

double PeakShare::of(int64_t tokens, double seconds) const {
  if (peak_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return flops_per_token_ * static_cast<double>(tokens) / seconds / peak_;
}

}  // namespace zeroth::trainer
