// LibTorch's tensors, dtypes and devices under the names of its C++ front end, torch::Tensor and
// torch::kFloat, with the operators that many sources call. torch/types.h has them too, but beside
// 2,000 others, which cost each source three seconds of compile time. Whoever calls another
// operator includes its header: <ATen/ops/mm.h>.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace torch {

using namespace at;  // as torch/types.h does
using Dtype = at::ScalarType;

}  // namespace torch
