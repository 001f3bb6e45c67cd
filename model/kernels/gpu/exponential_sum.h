// The logarithm of a sum of exponentials, accumulated element by element in one pass: the sum is
// kept relative to the largest element so far, and is rescaled when a larger one comes (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). Partial sums, such as those of
// the threads of a block, can be added in any order; the order changes only the rounding.
//
// The includer must define ZEROTH_INLINE and, in this namespace, exponential(float): the fast one
// of a GPU, or the library's in a test on the CPU.
#pragma once

#include <cmath>

namespace zeroth::model::gpu {
namespace {

// ExponentialSum is empty at first: its log() is then -inf.
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
