// The logarithm of a sum of exponentials, taken up element by element. Whoever includes this has
// defined ZEROTH_INLINE and, in this namespace, exponential(float): the fast one of a GPU, or in a
// test on the CPU the library's.
#pragma once

#include <cmath>

namespace zeroth::model::gpu {
namespace {

struct ExponentialSum {
  float maximum = -INFINITY;
  float sum = 0;  // of exp(x - most)

  // A masked logit, -inf, is no share of the sum, even where it comes first.
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
    if (other.sum == 0) return;  // nothing, or masked logits only
    const float larger = maximum < other.maximum ? other.maximum : maximum;
    sum = sum * exponential(maximum - larger) + other.sum * exponential(other.maximum - larger);
    maximum = larger;
  }
  ZEROTH_INLINE float log() const { return maximum + logf(sum); }
};

}  // namespace
}  // namespace zeroth::model::gpu
