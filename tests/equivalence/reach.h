// How far two runs may be apart that differ in rounding only.
//
// The bounds are measured, on the machine and in the process that runs the rows, so that they hold
// for any processor and library. The reference of a row, the same training on one rank, is run
// again with other roundings everywhere (perturbed_runs):
//   - its products by LibTorch (MKL), by oneDNN, and in our tiles: other orders of the sums within
//     every product;
//   - its samples in the reverse order: another order of the sums over tokens;
//   - its first weights moved by one unit in the last place, each up or down: another rounding of
//     everything that is computed from them.
// How far the largest of these is from the reference after each update (Noise) is what rounding
// does to this training, with all that its updates amplify. A row has roundings of the same kinds,
// and no larger ones: it splits the same sums among ranks, micro-batches and tiles.
//
// A row may be kMargin times as far. A perturbation and a row are draws of the same kind: a sum of
// many roundings, projected on whatever the updates amplify most. Where that is one direction,
// which is the worst case, both are normally distributed numbers, and that one is beyond four times
// the largest of five others has a probability of 0.0015 (the integral of 2 phi(x) erf(x / (4
// sqrt(2)))^5 over x > 0). Where many directions count, both are nearly constant: on a Zen 4 rows
// came to 0.27 of their bounds at most. A fault (a sum that lacks a rank or has one twice, a scale
// that is off by a hundredth) is far beyond the bounds: reach_test.cpp plants some.
//
// What is held to this: gradients of the first step, the optimizer's states at the end, and each
// element of the parameters at the end, by what an update rule does with an element (Reach).
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "configs/config.h"
#include "tests/equivalence/row.h"

namespace zeroth::equivalence {

using Tensors = std::map<std::string, torch::Tensor>;  // by parameter

inline constexpr double kMargin = 4;

// What is left of a run's updates: after each of them the parameters, and the optimizer's states in
// the order of UpdateRule::state_names().
struct Update {
  double lr = 0;
  Tensors values;
  std::vector<Tensors> states;
};
using History = std::vector<Update>;

// What rounding does to a training on one rank, as parts of the largest element of a parameter.
struct Noise {
  double first_gradient = 0;
  std::vector<double> states;  // after each update, and not less than after the one before
};

// Takes the larger of each: `first` and `history` are of a perturbed run.
void widen(Noise& noise, const Tensors& first_gradients, const Tensors& reference_gradients);
void widen(Noise& noise, const History& history, const History& reference,
           const configs::OptimizerConfig& config);

// The same in 16 bits, for a first gradient. Each rank's gradient of each micro-batch is rounded,
// and what they add up to after each of them, by half a unit in the last place each time: up to
// 2^-8 of it in bf16, which has 8 bits, and 2^-11 in fp16. Once more for the activations that both
// runs have computed them from: by one product these are rounded alike unless a factor between the
// runs is no power of two, as it is where three ranks divide behind their sum.
double rounding_noise(const Row& row);

// The largest difference of a gradient from its reference, as a part of the reference's largest
// element: over all parameters, which both must have.
double largest_gap(const Tensors& gradients, const Tensors& reference);

// The same of the optimizer's states. Of second moments the roots are compared: the root of a mean
// of squares moves no further than the gradients do.
double largest_gap(const std::vector<Tensors>& states, const std::vector<Tensors>& reference,
                   const configs::OptimizerConfig& config);

// How far each element of the parameters may be from the reference's at the end of its history.
//
// An update of Adam divides by the root of the second moment. Where that stands far above the noise
// of the gradient, two runs move an element alike up to noise / root; where it does not, noise is
// divided by noise, and the runs may move the element apart as far as Adam moves anything.
Tensors reach(const History& reference, const Noise& noise, const configs::OptimizerConfig& config);

// One parameter's elements, update by update.
class Reach {
 public:
  explicit Reach(const configs::OptimizerConfig& config) : config_(config) {}

  // After an update with rate `lr`: the parameter and its states, of the run from which another may
  // differ, whose gradients so far differ by `noise` of the largest element.
  void add(const torch::Tensor& value, const std::vector<torch::Tensor>& states, double lr,
           double noise);

  // fp64, per element: how far the other run's may be.
  const torch::Tensor& distance() const { return distance_; }

 private:
  torch::Tensor step(const std::vector<torch::Tensor>& states, double noise) const;
  torch::Tensor lamb_step(const torch::Tensor& value, const std::vector<torch::Tensor>& states,
                          double noise) const;

  configs::OptimizerConfig config_;
  int64_t updates_ = 0;
  torch::Tensor distance_, first_state_;
};

}  // namespace zeroth::equivalence
