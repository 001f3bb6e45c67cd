// Adapters beside products: y = x W^T + scale * dropout(x) A^T B^T (LoRA, arXiv 2106.09685).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/tensor.h"
#include "model/custom_function.h"
#include "model/kernels/dropout.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

struct LoraFactors {
  torch::Tensor a;  // [r, in]
  torch::Tensor b;  // [out, r]
};

struct LoraAdapter {
  LoraFactors factors;
  double scale = 1;
  DropoutSite dropout = {};
};

struct LoraForm {
  struct Adapter {
    size_t product = 0;  // index of the product to which it adds
    double scale = 1;
    DropoutSite dropout = {};
  };
  std::vector<Adapter> adapters = {};
  std::vector<SeededSample> samples = {};  // of the batch; empty: nothing is dropped
  // How ranks split the products; see linear().
  ParallelStyle style = ParallelStyle::kNone;
  TensorParallelPtr tp = nullptr;
  // Index of x's first row in the batch's tokens, and of its first column in the full input.
  int64_t first_token = 0, first_input = 0;
};

// LoraProducts computes the adapters of products of one input x [rows, in] together: x is read
// once, unless elements of it are dropped. The factors have the dtype of x. If ranks split the
// products, they exchange tensors as wide as the ranks of the adapters: split by outputs, x and dx
// are this rank's shard of the tokens, split by inputs, outputs and their gradients are.
class LoraProducts {
 public:
  LoraProducts() = default;
  explicit LoraProducts(LoraForm form) : form_(std::move(form)) {}

  size_t size() const { return form_.adapters.size(); }

  // Adds each adapter's result to the output of its product, [rows, out]. Returns what backward()
  // needs: scale * dropout(x) A^T of each adapter, [rows, r]. Collective if ranks split them.
  TensorVector forward(const torch::Tensor& x, const std::vector<LoraFactors>& factors,
                       const TensorVector& outputs) const;

  // Adds to dx [rows, in] if it is defined. `dy` are the gradients of the products' outputs, [rows,
  // out] or undefined; `low_rank` is forward()'s result. Returns the gradients of a, b, a, b, ...
  // as accumulate_grad() does. Collective if ranks split them.
  TensorVector backward(const torch::Tensor& x, const std::vector<LoraFactors>& factors,
                        const TensorVector& low_rank, const TensorVector& dy,
                        const torch::Tensor& dx) const;

 private:
  bool drops() const { return !form_.samples.empty(); }
  torch::Tensor dropped(const torch::Tensor& x, size_t adapter) const;
  TensorVector gradients_of_a(const torch::Tensor& x, const std::vector<LoraFactors>& factors,
                              const torch::Tensor& dlow_rank) const;

  LoraForm form_;
};

}  // namespace zeroth::model
