// A WeightSource gives a parameter's initial values: from a checkpoint, a counter-based generator
// (RandomSource), or the block itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_slice.h"
#include "device/tensor.h"
#include "model/spec.h"

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
  virtual void check(const std::string& /*name*/, const std::vector<int64_t>& /*shape*/) {}

  // Fills `out` (1-D, contiguous, CPU, any floating dtype) with the elements of the part from its
  // first one on, converted to out's dtype. Reads no others. Throws an Error that names the
  // parameter when a value is NaN or infinite.
  virtual void read(const ParamSlice& part, torch::Tensor out) = 0;
};

// Returns the name that safetensors uses for a dtype in which models and states are saved: "F32",
// "BF16" or "F16" for float32, bfloat16 or float16. Throws an InternalError for any other dtype.
std::string_view dtype_name(torch::Dtype dtype);
// Returns the dtype with this name; nullopt for other names.
std::optional<torch::Dtype> parse_dtype(std::string_view name);
// Returns the name of float32, bfloat16 or float16 in a config.json.
std::string_view torch_dtype_name(torch::Dtype dtype);
// Returns the dtype with this name; nullopt for other names.
std::optional<torch::Dtype> parse_torch_dtype(std::string_view name);

// Return values of a normal distribution with this deviation, or uniform ones in [-bound, bound),
// in `out` as WeightSource::read() does. A value depends on seed, parameter name and element index
// in the full parameter alone.
void draw_normal(const ParamSlice& part, uint64_t seed, double deviation, torch::Tensor out);
void draw_uniform(const ParamSlice& part, uint64_t seed, double bound, torch::Tensor out);

// A RandomSource draws normal(0, initializer_range); weights of norms are 1, biases 0, the padding
// token's row of the embedding 0; GPT-2's products into the residual stream are divided by sqrt(2
// layers). A value depends on seed, parameter name and element index in the full parameter alone,
// not on how it is read or split.
class RandomSource : public WeightSource {
 public:
  RandomSource(const ModelSpec& spec, uint64_t seed) : spec_(spec), seed_(seed) {}

  void read(const ParamSlice& part, torch::Tensor out) override;

 private:
  ModelSpec spec_;
  uint64_t seed_;
};

}  // namespace zeroth::model
