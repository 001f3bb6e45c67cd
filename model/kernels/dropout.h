// Dropout whose masks are a function of numbers, not of a generator's state: equal under recompute,
// on every device, and for any split of the global batch over ranks and micro-batches.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/micro_batch.h"

namespace zeroth::model {

// One place in the chain that drops.
struct DropoutSite {
  double p = 0;      // in [0, 1): the chance of an element to become 0
  uint64_t key = 0;  // another key, another mask
};

// A site with the key of its name ("layers.3.attention").
DropoutSite make_dropout_site(double p, const std::string& name);

// [lines.size(), size] bool: which elements stay in one row of the batch. Element e of line l is a
// hash of (row_seed, site.key, l, e) and of nothing else: not of how many lines or elements there
// are.
torch::Tensor keep_mask(int64_t row_seed, const DropoutSite& site,
                        const std::vector<int64_t>& lines, int64_t size, torch::Device device);

// The same bits by tensor operations, which run on every device.
torch::Tensor keep_mask_from_tensors(int64_t row_seed, const DropoutSite& site,
                                     const std::vector<int64_t>& lines, int64_t size,
                                     torch::Device device);

// Whether the site drops: p is not 0 and the batch has row_seeds, as in training. Throws an Error
// when they are missing where a graph is recorded: the loader forgot them.
bool applies_dropout(const DropoutSite& site, const MicroBatch& batch);

// x [batch, seq, size]: what stays is divided by 1 - p; line = position. x itself where p is 0 and
// where nothing is dropped (see drops). The backward makes the mask again. Or x [rows, size] of the
// flattened tokens from `first_token` on: rows behind the last token are finite.
torch::Tensor dropout(const torch::Tensor& x, const DropoutSite& site, const MicroBatch& batch,
                      int64_t first_token = 0);

}  // namespace zeroth::model
