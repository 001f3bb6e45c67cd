#include "trainer/peak_share.h"

#include <algorithm>
#include <limits>

#include "model/flops.h"
#include "model/matrix_peak.h"
#include "zero/strategy.h"

namespace zeroth::trainer {

PeakShare::PeakShare(const model::ModelSpec& spec, int64_t seq_len)
    : flops_per_token_(model::flops_per_token(spec, seq_len)) {}

void PeakShare::measure(configs::Precision precision, comm::Mesh& mesh) {
  double own = model::measure_matrix_peak(torch::kFloat, mesh.device());
  const torch::Dtype working = zero::dtype_of(precision);
  if (working != torch::kFloat) {
    own = std::max(own, model::measure_matrix_peak(working, mesh.device()));
  }
  const auto sum = torch::tensor({own}, torch::dtype(torch::kFloat64).device(mesh.device()));
  mesh.data().all_reduce(sum).wait();
  peak_ = sum.item<double>();
}

double PeakShare::of(int64_t tokens, double seconds) const {
  if (peak_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return flops_per_token_ * static_cast<double>(tokens) / seconds / peak_;
}

}  // namespace zeroth::trainer
