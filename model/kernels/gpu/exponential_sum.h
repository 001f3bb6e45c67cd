// The logarithm of a sum of exponentials, accumulated element by element. The includer must define
// ZEROTH_INLINE and, in this namespace, exponential(float): the fast one of a GPU, or the library's
// in a test on the CPU.
#pragma once

#include <cmath>

namespace zeroth::model::gpu {
namespace {

struct ExponentialSum {
  float maximum = -INFINITY;
  float sum = 0;  // of exp(x - maximum)

  // Adds one logit. A masked logit, -inf, adds nothing to the sum, even if it comes first.
  ZEROTH_INLINE void add(float x) {
    if (x == -INFINITY) return;
    if (x <= maximum) {
      sum += exponential(x - maximum);
    } else {
      sum = sum * exponential(maximum - x) + 1;
      maximum = x;
    }
  }
  ZEROTH_INLINE void add(const ExponentialSum& other) {
    if (other.sum == 0) return;  // it is empty, or has masked logits only
    const float larger = maximum < other.maximum ? other.maximum : maximum;
    sum = sum * exponential(maximum - larger) + other.sum * exponential(other.maximum - larger);
    maximum = larger;
  }
  ZEROTH_INLINE float log() const { return maximum + logf(sum); }
};

}  // namespace
}  // namespace zeroth::model::gpu
