// Products of groups of rows with a matrix of each group's own: of tokens with their experts.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"

namespace zeroth::model {

// RowGroups divides rows into neighboring groups, one for each of the matrices.
struct RowGroups {
  std::vector<int64_t> ends;  // index behind each group's last row
  torch::Tensor device_ends;  // the same, int32 on a GPU; undefined on the CPU

  int64_t begin(size_t group) const { return group == 0 ? 0 : ends[group - 1]; }
  int64_t rows(size_t group) const { return ends[group] - begin(group); }
};

// Returns the groups that have so many rows each.
RowGroups make_row_groups(const std::vector<int64_t>& counts, torch::Device device);

// Returns a [rows, k] times the matrices [groups, k, n], each group's rows with its own, plus the
// group's row of `bias` [groups, n] if that is defined. Does not record a graph. On a GPU products
// of bf16 are one.
torch::Tensor grouped_product(const torch::Tensor& a, const torch::Tensor& matrices,
                              const RowGroups& groups, const torch::Tensor& bias = {});

// Computes out [groups, m, n] = a^T b, or += with `add`, over each group's rows of a [rows, m] and
// b [rows, n]; a group without rows has a product of zeros.
void write_grouped_wgrad(const torch::Tensor& out, const torch::Tensor& a, const torch::Tensor& b,
                         const RowGroups& groups, bool add);

}  // namespace zeroth::model
