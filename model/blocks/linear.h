// The only product with a weight.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/split.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

enum class WeightLayout { kOutIn, kInOut };

// Which side of a weight is cut over the ranks that share a layer: by outputs ("column" in
// Megatron-LM's words) every rank needs all tokens and has a part of each one's result, by inputs
// ("row") it has a part of each token and an addend of the result.
enum class ParallelStyle { kNone, kColwise, kRowwise };

// The part of that side which a rank holds.
struct WeightShard {
  ParallelStyle style = ParallelStyle::kNone;
  int64_t begin = 0;      // in the whole weight
  int64_t extent = 0;     // of this rank's
  int64_t full_size = 0;  // of the whole weight
  int num_replicas = 1;   // as Split::num_replicas
  // The product in a checkpoint that this one is a part of ("qkv"); empty: its own.
  std::string product = "";
};

struct LinearShape {
  int64_t in = 0;  // of the whole product
  int64_t out = 0;
  bool bias = false;
  WeightLayout layout = WeightLayout::kOutIn;
  WeightShard shard = {};
  TensorParallelPtr tp = nullptr;  // where it is cut
};

// Parameters only, on the meta device: `weight` [out, in] or [in, out], and `bias` [out] where
// there is one; of the rank's part.
class Linear : public torch::nn::Module {
 public:
  explicit Linear(const LinearShape& shape);

  // Adds those of weight and bias where they are boxes of whole ones. `path` is the product's name
  // in its block: "attention.q".
  void add_splits(const std::string& path, Splits& splits) const;

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without a bias; not cut where the inputs are
  WeightLayout layout;
  WeightShard shard;
  TensorParallelPtr tp;
};

// Of all products in a block.
Splits linear_splits(const torch::nn::Module& block);

// x [..., in] -> [..., out] = x W^T + b. The backward adds to open gradients of weight and bias in
// place. Cut by outputs: x is this rank's run of tokens [rows, in], the result this rank's outputs
// for the tokens of all [ranks * rows, extent]. Cut by inputs: from all tokens [ranks * rows,
// extent] to this rank's run [rows, out], bias added once.
torch::Tensor linear(const torch::Tensor& x, const Linear& layer);

// Two or three products of the same x: its gradient is summed inside the products, and x is
// gathered once. On a GPU they are one product, forth and back, where their weights lie side by
// side and have no biases; the results are parts of one tensor then.
std::vector<torch::Tensor> linear(const torch::Tensor& x, const Linear& a, const Linear& b);
std::vector<torch::Tensor> linear(const torch::Tensor& x, const Linear& a, const Linear& b,
                                  const Linear& c);

// The product with a bare weight [out, in].
torch::Tensor project(const torch::Tensor& x, const torch::Tensor& weight);

}  // namespace zeroth::model
