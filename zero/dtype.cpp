#include "zero/dtype.h"

namespace zeroth::zero {

torch::Dtype dtype_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kBf16:
      return torch::kBFloat16;
    case configs::Precision::kFp16:
      return torch::kHalf;
    default:
      return torch::kFloat;
  }
}

}  // namespace zeroth::zero
