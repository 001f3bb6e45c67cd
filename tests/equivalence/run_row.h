// Trains a row on its ranks, as threads, and looks at what they hold.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "model/spec.h"
#include "model/weight_source.h"
#include "tests/equivalence/reach.h"
#include "tests/equivalence/row.h"
#include "tests/equivalence/samples.h"
#include "tests/support/ranks.h"

namespace zeroth::equivalence {

struct RowResult {
  // Per step.
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<double> rates;
  Tensors parameters;  // as saved at the end
  // fp32 rows: the optimizer's states at the end, by their numbers, and, of one rank, every update.
  std::vector<Tensors> states;
  History history;
  // What must hold on every rank after every step.
  bool ranks_agree = true;      // on loss and norm, to the bit
  bool masters_rounded = true;  // each working weight is its master rounded
  bool only_shards = true;      // nothing is gathered that does not rest here
  bool base_unchanged = true;   // at the end frozen units have the bits of the start
  int64_t skipped = 0;          // steps, summed over the ranks
  // Largest over the ranks.
  int64_t peak_live_elements = 0;
  int64_t persistent_bytes = 0;  // of parameters
};

RowResult run_row(const Row& row, testing::Transport transport = testing::Transport::kSharedMemory);
// On one rank, with samples that are dealt otherwise than the row says: with a part of them.
RowResult run_row(const Row& row, const Split& split);

// Whether `whole`, a unit's buffer, is zero between the parameters, where no gradient comes.
bool has_clean_padding(const zero::FlatLayout& layout, const torch::Tensor& whole);

// The gradients of the first step, fp64, whole and not clipped. Padding between them was zeros.
Tensors first_gradients(const Row& row);
// Of one rank, with samples that are dealt otherwise than the row says: of a part of them.
Tensors first_gradients(const Row& row, const Split& split);

std::filesystem::path checkpoint_of(const Row& row);

// The checkpoint's values; those of a bf16 row as if it were stored in bf16.
std::unique_ptr<model::WeightSource> weights_of(const Row& row, const model::ModelSpec& spec);

// The row's checkpoint under the row's config. Collective.
std::unique_ptr<engine::Engine> make_row_engine(const Row& row,
                                                std::shared_ptr<comm::DeviceMesh> mesh);

}  // namespace zeroth::equivalence
