// Dropout whose masks are a function of numbers, not of a generator's state: they are equal under
// recompute, on every device, and for any split of the global batch over ranks and micro-batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/micro_batch.h"

namespace zeroth::model {

// A DropoutSite is one place in the chain that drops elements.
struct DropoutSite {
  double p = 0;      // in [0, 1): the probability that an element becomes 0
  uint64_t key = 0;  // another key gives another mask
};

// Returns a site with the key of its name ("layers.3.attention").
DropoutSite make_dropout_site(double p, const std::string& name);

// Returns which elements stay in one row of the batch, [lines.size(), size] bool. Element e of line
// l is a hash of (row_seed, site.key, l, e) alone: the number of lines and elements does not
// matter. The elements are those from `first` on.
torch::Tensor keep_mask(int64_t row_seed, const DropoutSite& site,
                        const std::vector<int64_t>& lines, int64_t size, torch::Device device,
                        int64_t first = 0);

// Returns the same bits as keep_mask(), computed by tensor operations, which run on every device.
torch::Tensor keep_mask_from_tensors(int64_t row_seed, const DropoutSite& site,
                                     const std::vector<int64_t>& lines, int64_t size,
                                     torch::Device device, int64_t first = 0);

// Returns whether the site drops: p is not 0 and the batch has seeds, or has to have them, as a
// graph is recorded: seeded_samples() then says that the loader forgot them.
bool applies_dropout(const DropoutSite& site, const MicroBatch& batch);

// Returns x [batch, seq, size] with elements dropped and the others divided by 1 - p; line =
// position in the sample. Returns x itself if p is 0 or nothing is dropped (see applies_dropout).
// The backward recomputes the mask. x may also be [rows, size] of the flattened tokens from
// `first_token` on; rows after the last token are finite.
torch::Tensor dropout(const torch::Tensor& x, const DropoutSite& site, const MicroBatch& batch,
                      int64_t first_token = 0);

// Returns x [rows, size] with the same elements dropped as by dropout(), for a batch with these
// samples: of the flattened tokens from `first_token` on, their elements from `first_element` on.
// Does not record a graph.
torch::Tensor dropped_rows(const torch::Tensor& x, const DropoutSite& site,
                           const std::vector<SeededSample>& samples, int64_t first_token,
                           int64_t first_element = 0);

}  // namespace zeroth::model
