// What one rank runs forward and backward at once.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace zeroth::model {

// A target that is not trained: it adds neither loss nor gradient and is not counted. PyTorch's
// `ignore_index`.
inline constexpr int64_t kIgnoreIndex = -100;

struct MicroBatch {
  torch::Tensor tokens;   // [batch, seq] int64
  torch::Tensor targets;  // [batch, seq] int64, token t's successor or kIgnoreIndex; undefined: the
                          // head returns logits
  torch::Tensor positions;  // [batch, seq] int64; undefined: 0 .. seq-1 in every row
  // [n] int64: which of all targets, counted row by row, are trained. The engine fills it, so that
  // nobody has to look on a device, which would wait for it; undefined elsewhere.
  torch::Tensor label_indices;

  // The head's loss is the sum over this micro-batch's trained tokens divided by it, so that losses
  // and gradients of a step, over all ranks and micro-batches, simply add up to its mean, but for a
  // factor that the engine knows at the step's end (engine/step_batches.h). 1 in an evaluation.
  double loss_normalizer = 1;
  // Factor on the gradient that enters the head (the fp16 loss scale, the number of ranks where
  // gradients are divided after they were summed). The loss itself is not scaled.
  double grad_scale = 1;
  // [] fp32 on the device: grad_scale as the tensor with which the backward starts. The head
  // recognizes it by its memory and then multiplies by no factor. The engine fills it; undefined
  // elsewhere.
  torch::Tensor loss_gradient;
  // Per row hash(seed, step, index in the global batch), as bits: random operations are functions
  // of it and draw from no generator. Empty: an evaluation, nothing is random.
  std::vector<int64_t> row_seeds;
  // Global sample numbers of the rows, for messages.
  std::vector<int64_t> samples;
};

}  // namespace zeroth::model
