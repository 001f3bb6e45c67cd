// The samples on which a run trains and evaluates, its number of steps, and the ends of its epochs
// in the sample order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/config.h"
#include "configs/diagnostic.h"
#include "data/records/data_files.h"
#include "data/samples/dataset.h"
#include "data/samples/sample_mixture.h"

namespace zeroth::trainer {

class PhaseProgress;
struct Flags;
struct ResumePlan;
struct StartPoint;

// What determines the samples of a file, besides the flags.
struct DatasetFacts {
  int64_t vocab_size = 0;  // of the model
  int64_t seq_len = 0;
  int version = data::kDataVersion;  // version of the samples; a resumed run keeps its own
};

// A DataPart is what one value of --data or --eval-data names.
struct DataPart {
  std::vector<std::filesystem::path> files;
  data::DataSource source;
};

// Returns the parts of a flag's values. Throws an Error for a value that names no file, and for
// weights of some values only, or with --eval-data.
std::vector<DataPart> find_data(std::string_view flag, const std::vector<std::string>& values);

// An OpenedFile is a data file in use, and what is known of its samples.
struct OpenedFile {
  std::string path;
  data::DatasetStats stats;
};

// The datasets of a run.
struct Datasets : DatasetFacts {
  // Null with --eval-only, and if only the plan is needed.
  std::unique_ptr<data::Dataset> train = nullptr;
  std::unique_ptr<data::Dataset> eval = nullptr;                 // null without evaluation
  std::shared_ptr<const data::SampleMixture> mixture = nullptr;  // of `train`; null: no weights
  std::vector<OpenedFile> train_files = {}, eval_files = {};

  // Returns the number of samples of an epoch.
  int64_t train_size() const { return mixture ? mixture->epoch_size() : train->size(); }
  int64_t eval_size() const { return eval ? eval->size() : 0; }
};

// Opens the training and evaluation samples that the flags name; a dataset that is not named stays
// null. Throws an Error as data::open_dataset. Shows the reading as a phase of `phases`, unless
// that is null.
Datasets open_datasets(const Flags& flags, const DatasetFacts& facts, configs::Diagnostics& notes,
                       PhaseProgress* phases = nullptr);

// Writes the tokens of --data to files named --output (data/samples/token_cache.h). Returns a line
// with their numbers.
std::string tokenize(const Flags& flags, const DatasetFacts& facts, PhaseProgress* phases);

// Adds notes and warnings about how the files were interpreted and what is left out of them.
void add_dataset_notes(const Flags& flags, const Datasets& datasets, configs::Diagnostics& notes);

// Returns the values of the flag that names the evaluated samples.
const std::vector<std::string>& eval_files(const Flags& flags);
// Returns the values of --data that are trained, or eval_files(), for messages.
std::string train_paths(const Flags& flags);
std::string eval_paths(const Flags& flags);

// The datasets, and how much of them a run uses.
struct Samples : Datasets {
  int64_t total_steps = 0;  // 0: neither flags nor data determine it, as with --eval-only
  // Samples of the whole run, repeated ones included: epochs end within the last step. There is no
  // such end with --steps.
  int64_t train_samples = std::numeric_limits<int64_t>::max();
  // Samples of one epoch: all but those that dataloader_drop_last leaves out.
  int64_t epoch_samples = 0;
  // Positions of the sample order in one epoch: more than its samples if it ends with a short step.
  int64_t epoch_positions = 0;
  bool whole_epochs = false;  // epochs end with a short step, as in Trainer
  // The run is at position s * train_batch_size + offset of the sample order after s steps. The
  // offset is not 0 if earlier batches had another size.
  int64_t offset = 0;

  // Returns the number of samples at the first `positions` positions of the sample order.
  int64_t num_samples_in(int64_t positions) const;
};

// Returns the samples of a run that starts at `start`: its steps by its flags, and the layout of
// its epochs. `drops`: whether an incomplete batch is left out.
Samples count_steps(Datasets datasets, const StartPoint& start, const configs::BatchConfig& batch,
                    bool drops, configs::Diagnostics& notes);

// Returns Samples::offset of a run that resumes from `from`: places the consumed samples, in epochs
// as they were laid out then, on current positions.
int64_t resume_offset(const ResumePlan& from, const Samples& samples, int64_t global_batch);

// Returns the samples in `epochs` passes, rounded to the nearest number, at least one. Throws an
// Error above kMaxSteps.
int64_t samples_in_epochs(double epochs, int64_t samples);

}  // namespace zeroth::trainer
