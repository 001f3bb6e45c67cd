#include <ATen/ops/_grouped_mm.h>

#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Returns whether LibTorch multiplies all groups at once: rows have to be multiples of 16 bytes.
bool has_grouped_kernel(const Tensor& a, int64_t other_size, const RowGroups& groups) {
  constexpr int64_t kElements = 8;
  return groups.device_ends.defined() && a.scalar_type() == torch::kBFloat16 &&
         a.size(1) % kElements == 0 && other_size % kElements == 0;
}

}  // namespace

RowGroups make_row_groups(const std::vector<int64_t>& counts, torch::Device device) {
  RowGroups groups;
  for (const int64_t count : counts)
    groups.ends.push_back(count + (groups.ends.empty() ? 0 : groups.ends.back()));
  if (!device.is_cpu())
    groups.device_ends = torch::tensor(groups.ends, torch::kInt).to(device, /*non_blocking=*/true);
  return groups;
}

Tensor grouped_product(const Tensor& a, const Tensor& matrices, const RowGroups& groups,
                       const Tensor& bias) {
  const auto num_groups = static_cast<int64_t>(groups.ends.size());
  const bool at_once = has_grouped_kernel(a, matrices.size(2), groups);
  Tensor out;
  if (at_once) {
    out = at::_grouped_mm(a, matrices, groups.device_ends);
  } else {
    out = at::empty({a.size(0), matrices.size(2)}, a.options());
  }
  for (int64_t group = 0; group < num_groups; ++group) {
    const auto index = static_cast<size_t>(group);
    const int64_t begin = groups.begin(index), rows = groups.rows(index);
    if (rows == 0) continue;
    Tensor own = out.narrow(0, begin, rows);
    if (!at_once) write_matrix_product(own, a.narrow(0, begin, rows), matrices[group]);
    if (bias.defined()) own.add_(bias[group]);
  }
  return out;
}

void write_grouped_wgrad(const Tensor& out, const Tensor& a, const Tensor& b,
                         const RowGroups& groups, bool add) {
  if (has_grouped_kernel(a, b.size(1), groups)) {
    const Tensor products = at::_grouped_mm(a.t(), b, groups.device_ends);
    add ? out.add_(products) : out.copy_(products);
    return;
  }
  const bool direct = out.scalar_type() == a.scalar_type() || accumulates_in_fp32(out, a);
  for (int64_t group = 0; group < out.size(0); ++group) {
    const auto index = static_cast<size_t>(group);
    const int64_t begin = groups.begin(index), rows = groups.rows(index);
    Tensor own = out[group];
    if (rows == 0) {
      if (!add) own.zero_();
      continue;
    }
    const Tensor left = a.narrow(0, begin, rows).t(), right = b.narrow(0, begin, rows);
    if (direct) {
      write_matrix_product(own, left, right, add);
    } else {
      const Tensor product = matrix_product(left, right);
      add ? own.add_(product) : own.copy_(product);
    }
  }
}

}  // namespace zeroth::model
