// The shapes of what operators return, where LibTorch's device Meta does not know them: a GPU need
// not be waited for.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

namespace zeroth::simulated {
namespace {

using at::Tensor;

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return at::empty(sizes, self.options());
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor&, int64_t num_weights, int64_t,
                                bool) {
  return at::empty({num_weights, grad.size(-1)}, grad.options());
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return at::empty(sizes, condition.options().dtype(at::result_type(self, other)));
}

Tensor relu(const Tensor& self) {
  return at::empty_like(self);
}

Tensor& abs_out(const Tensor& self, Tensor& out) {
  out.resize_(self.sizes());
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", index_select);
  library.impl("embedding_dense_backward", embedding_dense_backward);
  library.impl("where.self", where);
  library.impl("relu", relu);
  library.impl("abs.out", abs_out);
}

}  // namespace zeroth::simulated
