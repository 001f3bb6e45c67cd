// A WeightSource gives a parameter's initial values: from a checkpoint, a counter-based generator,
// or the block itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor_slice.h"

namespace zeroth::model {

// A ParamSlice selects elements of a full parameter, or of the slice of it that a rank holds.
struct ParamSlice {
  std::string name;  // of the full parameter: "layers.3.attention.q.weight"
  TensorSlice box;
  int64_t first = 0;  // first element within the slice, row by row
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Throws an Error that names the parameter when the source misses it or holds it with another
  // shape. `name` and `shape` are those of the full parameter.
  virtual void check(const std::string& name, const std::vector<int64_t>& shape) = 0;

  // Fills `out` (1-D, contiguous, CPU, any floating dtype) with the elements of the part from its
  // first one on, converted to out's dtype. Reads no others. Throws an Error that names the
  // parameter when a value is NaN or infinite.
  virtual void read(const ParamSlice& part, torch::Tensor out) = 0;
};

}  // namespace zeroth::model
