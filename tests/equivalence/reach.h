// How far two runs may be apart that differ in the rounding of their gradients only: derived from
// what an update rule does with an element, so that it holds for any order of sums.
//
// An update of Adam divides by the root of the second moment. Where that stands far above the noise
// of the gradient, two runs move an element alike up to noise / root; where it does not, noise is
// divided by noise, and the runs may move the element apart as far as Adam moves anything.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "configs/config.h"
#include "tests/equivalence/row.h"

namespace zeroth::equivalence {

using Tensors = std::map<std::string, torch::Tensor>;  // by parameter

// Two orders of a sum of n addends, each rounded to 24 bits, differ by about sqrt(2 n) 2^-24 of it:
// here for a gradient's sum over the tokens of a step, as a part of the largest element of its
// parameter. A sum that lacks an addend, or has one in a wrong place, differs by far more.
inline constexpr double kNoise = 2.3e-6;  // 768 tokens

// Where ranks share layers the sums over features within a layer have another order, too, in
// forward and backward. A missing addend of one of t ranks is 1 / t of a gradient.
inline constexpr double kSharedNoise = 1e-5;

// The same for a first gradient in the row's precision. In 16 bits each rank's gradient of each
// micro-batch is rounded, and what they add up to after each of them, by half a unit in the last
// place each time: up to 2^-8 of it in bf16, which has 8 bits, and 2^-11 in fp16. Once more for the
// activations that both runs have computed them from: these are rounded alike unless a factor
// between the runs is no power of two, as it is where three ranks divide behind their sum.
double first_noise(const Row& row);

// The same for a gradient after so many updates, and for moments: it is taken where the parameters
// differ by what the gradients before it left, at most as much each.
double later_noise(int64_t updates);

// The largest difference of a gradient from its reference, as a part of the reference's largest
// element: over all parameters, which both must have.
double largest_gap(const Tensors& gradients, const Tensors& reference);

// One parameter's elements, update by update.
class Reach {
 public:
  explicit Reach(const configs::OptimizerConfig& config) : config_(config) {}

  // After an update with rate `lr`: the parameter and its states in the order of
  // UpdateRule::state_names(), of the run from which another may differ.
  void add(const torch::Tensor& value, const std::vector<torch::Tensor>& states, double lr);

  // fp64, per element: how far the other run's may be.
  const torch::Tensor& distance() const { return distance_; }

 private:
  torch::Tensor step(const std::vector<torch::Tensor>& states) const;
  torch::Tensor lamb_step(const torch::Tensor& value,
                          const std::vector<torch::Tensor>& states) const;

  configs::OptimizerConfig config_;
  int64_t updates_ = 0;
  torch::Tensor distance_, first_state_;
};

}  // namespace zeroth::equivalence
