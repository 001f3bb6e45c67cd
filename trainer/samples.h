// The samples on which a run trains and evaluates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "configs/diagnostic.h"
#include "data/samples/dataset.h"
#include "trainer/flags/flags.h"
#include "trainer/report/phase_progress.h"

namespace zeroth::trainer {

// The datasets, and how much of them a run uses.
struct Samples {
  int version = data::kDataVersion;  // version of the samples; a resumed run keeps its own
  int64_t seq_len = 0;
  std::unique_ptr<data::Dataset> train;  // null with --eval-only, and if only the plan is needed
  std::unique_ptr<data::Dataset> eval;   // null without evaluation
  int64_t total_steps = 0;               // 0 with --eval-only
  // Samples of the whole run, repeated ones included: epochs end within the last step. There is no
  // such end with --steps.
  int64_t train_samples = std::numeric_limits<int64_t>::max();
  // Samples of one epoch: all but those that dataloader_drop_last leaves out.
  int64_t epoch_samples = 0;
  // Positions of the sample order in one epoch: more than its samples if it ends with a short step.
  int64_t epoch_positions = 0;
  bool whole_epochs = false;  // epochs end with a short step, as in Trainer
  int64_t eval_samples = 0;
  int64_t max_train_samples = std::numeric_limits<int64_t>::max();  // --max_train_samples

  // Returns the number of samples of `train` in use, which are the first ones.
  int64_t train_size() const { return std::min(train->size(), max_train_samples); }
  // Returns the number of samples at the first `positions` positions of the sample order.
  int64_t num_samples_in(int64_t positions) const;
};

// Opens the training and evaluation samples that the flags name, with `samples.seq_len` positions
// each; a dataset that is not named stays null. `vocab_size`: of the model. Throws an Error as
// data::open_dataset. Shows the reading as a phase of `phases`, unless that is null.
void open_samples(const Flags& flags, int64_t vocab_size, Samples& samples,
                  configs::Diagnostics& notes, PhaseProgress* phases = nullptr);

// Adds notes and warnings about how the files were interpreted and what is left out of them.
void add_dataset_notes(const Flags& flags, const Samples& samples, configs::Diagnostics& notes);

}  // namespace zeroth::trainer
