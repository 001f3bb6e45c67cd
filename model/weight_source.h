// Where a parameter's first values come from: a checkpoint, a counter-based generator, or the block
// itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace zeroth::model {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Throws an Error that names the parameter when the source lacks it or holds it with another
  // shape.
  virtual void check(const std::string& name, const std::vector<int64_t>& shape) = 0;

  // Fills `out` (1-D, contiguous, CPU, any floating dtype) with the elements [begin, begin +
  // out.numel()) of the row-major parameter `name` ("layers.3.attention.q.weight"), converted to
  // out's dtype. Touches nothing outside that range. Throws an Error that names the parameter when
  // a value is NaN or infinite.
  virtual void read(const std::string& name, int64_t begin, torch::Tensor out) = 0;
};

}  // namespace zeroth::model
