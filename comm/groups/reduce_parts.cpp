#include "comm/groups/reduce_parts.h"

#include <ATen/ops/add.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "base/error.h"

namespace zeroth::comm {
namespace {

void combine(ReduceOp op, torch::Tensor out, const torch::Tensor& left,
             const torch::Tensor& right) {
  if (op == ReduceOp::kMax) {
    at::maximum_out(out, left, right);
  } else if (op == ReduceOp::kMin) {
    at::minimum_out(out, left, right);
  } else {
    at::add_out(out, left, right);
  }
}

}  // namespace

void reduce_parts(ReduceOp op, const torch::Tensor& out, const std::vector<torch::Tensor>& parts,
                  torch::Tensor& scratch) {
  ZEROTH_CHECK(parts.size() > 1, "{} parts", parts.size());
  if (parts.size() == 2) {  // adds 16-bit floats in fp32 by itself
    combine(op, out, parts[0], parts[1]);
    return;
  }
  const bool is_16_bit = out.scalar_type() == torch::kBFloat16 || out.scalar_type() == torch::kHalf;
  const torch::Dtype dtype = is_16_bit ? torch::kFloat : out.scalar_type();
  if (!scratch.defined() || scratch.scalar_type() != dtype || scratch.numel() < out.numel()) {
    scratch = torch::empty({out.numel()}, dtype);
  }
  const torch::Tensor sum = scratch.narrow(0, 0, out.numel());
  sum.copy_(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) combine(op, sum, sum, parts[i]);
  out.copy_(sum);
}

}  // namespace zeroth::comm
