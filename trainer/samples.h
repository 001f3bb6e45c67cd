// What a run trains and evaluates on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "configs/diagnostic.h"
#include "data/dataset.h"
#include "trainer/flags/flags.h"
#include "trainer/report/phase_progress.h"

namespace zeroth::trainer {

// The datasets, and how much of them a run takes.
struct Samples {
  int version = data::kDataVersion;  // how they are made; of a run that goes on, as it began
  int64_t seq_len = 0;
  std::unique_ptr<data::Dataset>
      train;  // null with --eval-only, and where nothing but the plan is wanted
  std::unique_ptr<data::Dataset> eval;  // null when nothing is evaluated
  int64_t total_steps = 0;              // 0 with --eval-only
  // Samples of the whole run, repeated ones included: epochs end within the last step. With --steps
  // there is no such end.
  int64_t train_samples = std::numeric_limits<int64_t>::max();
  // Of one epoch: all, but for those that dataloader_drop_last leaves out.
  int64_t epoch_samples = 0;
  // Of the sample order that an epoch takes: more where it ends with a short step.
  int64_t epoch_positions = 0;
  bool whole_epochs = false;  // epochs end with a short step, as Trainer's
  int64_t eval_samples = 0;
  int64_t max_train_samples = std::numeric_limits<int64_t>::max();  // --max_train_samples

  // Of `train`: the first ones that count.
  int64_t train_size() const { return std::min(train->size(), max_train_samples); }
  // That so many positions of the sample order, from the first one, have.
  int64_t num_samples_in(int64_t positions) const;
};

// Opens what the flags name as training and evaluation samples of `samples.seq_len` positions; what
// is not named stays null. `vocab_size`: of the model. Throws an Error as data::open_dataset.
// What is read is shown as a phase of `phases`, or not, where that is null.
void open_samples(const Flags& flags, int64_t vocab_size, Samples& samples,
                  configs::Diagnostics& notes, PhaseProgress* phases = nullptr);

// Notes and warnings about how the files were understood and what of them is lost.
void add_dataset_notes(const Flags& flags, const Samples& samples, configs::Diagnostics& notes);

}  // namespace zeroth::trainer
