// Linear is the only product with a weight.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/block.h"
#include "model/blocks/lora.h"
#include "model/kernels/dropout.h"
#include "model/kernels/nf4.h"
#include "model/micro_batch.h"
#include "model/spec.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

enum class WeightLayout { kOutIn, kInOut };

// A `WeightShard` is the part of the split dimension that a rank holds.
struct WeightShard {
  ParallelStyle style = ParallelStyle::kNone;
  int64_t begin = 0;      // in the full weight
  int64_t extent = 0;     // of this rank's part
  int64_t full_size = 0;  // of the full weight
  int num_replicas = 1;   // see Split::num_replicas
  // The product in a checkpoint that contains this one ("qkv"); empty if it is stored by itself.
  std::string product = "";
};

struct LinearShape {
  int64_t in = 0;  // of the full product
  int64_t out = 0;
  bool bias = false;
  WeightLayout layout = WeightLayout::kOutIn;
  WeightShard shard = {};
  TensorParallelPtr tp = nullptr;  // set if ranks share the layer
  // Set: the weight [out, in] is in NF4. If ranks split it, `in` and its parts are multiples of 64.
  std::optional<QuantizationSpec> quantization = std::nullopt;
};

// Linear holds parameters only, on the meta device: `weight` [out, in] or [in, out], and `bias`
// [out] if there is one. Both are this rank's part. In NF4 `weight` has the codes, uint8 [out, in /
// 2], and `weight_absmax`, and with double quantization `weight_nested_absmax`, the scales
// (Nf4Scales), uint8 [out, bytes of a row] and [bytes] of the full weight; if `in` is no multiple
// of 64, codes and scales are flattened.
class Linear : public torch::nn::Module {
 public:
  // A QuantizedWeight says what `weight` means if it holds codes.
  struct QuantizedWeight {
    Nf4Scales scales;
    std::optional<torch::Dtype> dtype;  // to which values are rounded first
  };

  explicit Linear(const LinearShape& shape);

  // Adds an adapter, whose factors are the parameters `lora_A` [r, in] and `lora_B` [out, r]; with
  // `a`, to share its factor A with another part of the same product. Split
  // by outputs, a rank has all of A and its rows of B; split by inputs, its columns of A and all of
  // B.
  void add_adapter(int64_t r, double scale, const DropoutSite& dropout,
                   const torch::Tensor& a = {});

  int64_t in, out;  // of this rank's part
  torch::Tensor weight;
  std::optional<QuantizedWeight> quantized;
  torch::Tensor bias;  // undefined without a bias; full where the inputs are split
  std::optional<LoraAdapter> adapter;
  WeightLayout layout;
  WeightShard shard;
  TensorParallelPtr tp;

 private:
  void register_nf4(const LinearShape& shape);
};

// Returns the number of parameters of a block, or of this rank's part of it. A weight in NF4 counts
// as it would without quantization.
int64_t count_parameters(const torch::nn::Module& block);

// Returns the splits of weights and biases, those that are slices of full ones, of all products in
// a block.
Splits linear_splits(const torch::nn::Module& block);

// Returns x W^T + b, x [..., in] -> [..., out]. The backward adds to open gradients of weight and
// bias in place. Split by outputs, x is this rank's shard of the tokens [rows, in], and the result
// is this rank's outputs for the tokens of all ranks [ranks * rows, extent]. Split by inputs, it
// maps all tokens [ranks * rows, extent] to this rank's shard [rows, out], with the bias added
// once. An adapter drops elements of x, whose rows are the batch's tokens, if the batch has seeds.
torch::Tensor linear(const torch::Tensor& x, const Linear& layer, const MicroBatch& batch = {});

// Returns several products of the same x: its gradient is summed inside the products, and x is
// gathered once. On a GPU they are one product, in forward and backward, if their weights are
// adjacent in memory and have no biases; the results are then parts of one tensor. Gradients of
// weights are one product if all have one.
std::vector<torch::Tensor> linear(const torch::Tensor& x,
                                  std::initializer_list<const Linear*> layers,
                                  const MicroBatch& batch = {});

struct RowwiseProduct {
  torch::Tensor x;  // [ranks * rows, in]
  const Linear& layer;
};

// Returns the sum of products that ranks split by inputs, without adapters, as this rank's shard
// [rows, out]: the ranks' partial sums of both products are reduced at once. Collective.
torch::Tensor rowwise_sum(const RowwiseProduct& a, const RowwiseProduct& b);

// Returns the product with a bare weight [out, in].
torch::Tensor project(const torch::Tensor& x, const torch::Tensor& weight);

}  // namespace zeroth::model
