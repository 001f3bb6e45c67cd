#include "model/kernels/matrix_product.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "base/machine/cpu.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// The type of an operator that computes x weight^T of x [m, k] and weight [n, k].
using LinearOp = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                        c10::string_view, c10::List<std::optional<at::Scalar>>,
                        std::optional<c10::string_view>);

std::optional<c10::TypedOperatorHandle<LinearOp>> find_onednn() {
  const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!op) return std::nullopt;
  return op->typed<LinearOp>();
}

MatmulBackend select_fp32_product(const Tensor& a, const Tensor& b) {
  const bool small = a.size(0) * a.size(1) * b.size(1) < kSmallMatmul;
  return small ? matmul_backends().small_fp32 : matmul_backends().fp32;
}

// Returns undefined if LibTorch's own product should run.
Tensor onednn_product(const Tensor& a, const Tensor& b) {
  static const auto op = find_onednn();
  const bool fits = op && a.is_cpu() && a.scalar_type() == torch::kFloat &&
                    select_fp32_product(a, b) == MatmulBackend::kOneDnn;
  if (!fits) return {};
  return op->call(a, b.t(), std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), "");
}

bool uses_tiles(const Tensor& a, const Tensor& b) {
  const bool fp32 = a.is_cpu() && a.scalar_type() == torch::kFloat;
  return fp32 ? select_fp32_product(a, b) == MatmulBackend::kTiles : prefers_fp32(a);
}

}  // namespace

bool prefers_fp32(const Tensor& a) {
  if (!a.is_cpu()) return false;
  if (a.scalar_type() == torch::kBFloat16) return matmul_backends().bf16 == MatmulBackend::kTiles;
  return a.scalar_type() == torch::kHalf && matmul_backends().fp16 == MatmulBackend::kTiles;
}

bool accumulates_in_fp32(const Tensor& out, const Tensor& a) {
  return out.scalar_type() == torch::kFloat && a.element_size() == 2 &&
         (a.is_cuda() || prefers_fp32(a));
}

Tensor matrix_product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const torch::NoGradGuard no_grad;
  if (uses_tiles(a, b)) {
    const Tensor product = bias.defined() ? bias.expand({a.size(0), b.size(1)}).contiguous()
                                          : at::empty({a.size(0), b.size(1)}, a.options());
    tiled_product(product, a, b, /*add=*/bias.defined());
    return product;
  }
  const Tensor product = onednn_product(a, b);
  if (!bias.defined()) return product.defined() ? product : at::mm(a, b);
  return product.defined() ? product.add_(bias) : at::addmm(bias, a, b);
}

Tensor concatenated_view(at::TensorList parts, int64_t dim) {
  const Tensor& first = parts[0];
  std::vector<int64_t> sizes = first.sizes().vec();
  int64_t& extent = sizes[static_cast<size_t>(dim)];
  for (const Tensor& part : parts.slice(1)) {
    const bool is_next =
        part.is_alias_of(first) && part.scalar_type() == first.scalar_type() &&
        part.strides() == first.strides() &&
        part.storage_offset() == first.storage_offset() + extent * first.stride(dim);
    std::vector<int64_t> part_sizes = part.sizes().vec();
    part_sizes[static_cast<size_t>(dim)] = extent;  // the other sizes must be equal
    if (!is_next || part_sizes != sizes) return {};
    extent += part.size(dim);
  }
  return at::as_strided(first, sizes, first.strides(), first.storage_offset());
}

void write_matrix_product(Tensor out, const Tensor& a, const Tensor& b, bool add) {
  const torch::NoGradGuard no_grad;
  if (uses_tiles(a, b)) return tiled_product(out, a, b, add);
  if (accumulates_in_fp32(out, a)) {
    add ? at::addmm_out(out, out, a, b, torch::kFloat) : at::mm_out(out, a, b, torch::kFloat);
    return;
  }
  const Tensor product = onednn_product(a, b);
  if (add) {
    product.defined() ? out.add_(product) : out.addmm_(a, b);
  } else {
    product.defined() ? out.copy_(product) : at::mm_out(out, a, b);
  }
}

}  // namespace zeroth::model
