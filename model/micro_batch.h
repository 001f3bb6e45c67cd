// A MicroBatch is what one rank runs forward and backward at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/tensor.h"

namespace zeroth::model {

// Target that is not trained: it adds neither loss nor gradient and is not counted. It is PyTorch's
// `ignore_index`.
inline constexpr int64_t kIgnoreIndex = -100;

// RouterSums is what the routers of a chain's blocks count of one micro-batch in training. A block
// that runs again (recompute) assigns the same values.
struct RouterSums {
  struct Layer {
    torch::Tensor counts;      // [experts] int64: tokens of this rank that chose each expert
    torch::Tensor scores;      // [experts] fp32: sums over its tokens of their scores
    torch::Tensor tokens;      // [] int64: its tokens; as everywhere here, without those of padding
    double aux_loss_coef = 0;  // of the load balancing loss; 0: none
  };
  std::map<std::string, Layer> layers;  // by the labels of blocks

  // [experts] fp32: the gradient of each token's scores from the load balancing loss; undefined
  // without one. The engine assigns it between forward and backward.
  torch::Tensor score_gradient;
};

struct MicroBatch {
  torch::Tensor tokens;   // [batch, seq] int64
  torch::Tensor targets;  // [batch, seq] int64, token t's successor or kIgnoreIndex; undefined: the
                          // head returns logits
  torch::Tensor positions;  // [batch, seq] int64; undefined: 0 .. seq-1 in every row
  // [batch, seq] int64 on the CPU: the first token of its row that each token sees, at most itself:
  // where its sample begins, if a row holds several. Undefined: 0.
  torch::Tensor first_keys;
  // [batch, seq] bool: false at positions that only fill a row. They change no other token, and
  // routers do not count them. Undefined: there are none.
  torch::Tensor attention_mask;
  // [n] int64: indices of the label tokens among all targets, counted row by row. The engine fills
  // it, so that the head need not search for them on a device, which would wait for it; undefined
  // elsewhere.
  torch::Tensor label_indices;

  // Divisor of the sum over this micro-batch's label tokens in the head's loss. It makes losses and
  // gradients of a step, over all ranks and micro-batches, add up to the step's mean, except for a
  // factor that the engine knows at the step's end (engine/step/step_batches.h). 1 in an
  // evaluation.
  double loss_normalizer = 1;
  // Factor on the gradient that enters the head (the fp16 loss scale, or the number of ranks if
  // gradients are divided after they are summed). The loss itself is not scaled.
  double grad_scale = 1;
  // [] fp32 on the device: grad_scale as the tensor with which the backward starts. The head
  // recognizes it by its memory and then multiplies by no factor. The engine fills it; undefined
  // elsewhere.
  torch::Tensor loss_gradient;
  // Per sample hash(seed, step, index in the global batch), as bits: random operations are
  // functions of it and use no generator. Empty in an evaluation, where nothing is random.
  std::vector<int64_t> sample_seeds;
  // What routers count, in training; null elsewhere.
  std::shared_ptr<RouterSums> router_sums;
  // Global sample indices of the rows, for messages.
  std::vector<int64_t> samples;
};

// Returns the tokens at which samples begin, counted row by row: those that are their own first
// key.
std::vector<int64_t> sample_begins(const torch::Tensor& first_keys);

// SeededSample is a sample among the tokens of a micro-batch, which are counted row by row.
struct SeededSample {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t seed = 0;
};

// Returns the samples in order: the rows, or those of sample_begins().
// Throws an Error unless there are as many seeds: the loader forgot some.
std::vector<SeededSample> seeded_samples(const MicroBatch& batch);

}  // namespace zeroth::model
