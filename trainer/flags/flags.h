// The command line of `finetune`.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/resolve.h"
#include "data/samples/dataset.h"
#include "trainer/flags/hf_flags.h"
#include "trainer/flags/interval.h"

namespace zeroth::trainer {

// Upper limits of counts: larger values are likely mistakes, and products would exceed 64 bits.
inline constexpr int64_t kMaxSteps = 1'000'000'000'000'000;  // steps or samples of a run
inline constexpr int64_t kMaxRows = 100'000'000;             // rows, or positions of a row

inline constexpr int64_t kMaxSeconds = 1'000'000'000;  // of a timeout

inline constexpr int64_t kMaxTracedSteps = 100;  // each has an event per operation and rank

// Steps of a run, from 1, both included.
struct StepRange {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first <= step && step <= last; }
  bool operator==(const StepRange&) const = default;
};

// Flags about resuming a run.
struct ResumeFlags {
  enum class From {
    kNothing,
    kNewest,           // in --output; an Error if there is none
    kNewestOrNothing,  // the run starts from scratch if there is none
    kNamed
  };
  From from = From::kNothing;
  std::string directory;                // kNamed: of one checkpoint, or of several
  bool allow_batch_change = false;      // --allow-batch-change
  std::vector<std::string> may_change;  // --allow-change: keys of the configuration

  bool is_on() const { return from != From::kNothing; }
};

// Flags about saving a run's state.
struct StateFlags {
  bool only_model = false;              // --save_only_model: no run can resume from what is saved
  std::optional<double> every_minutes;  // --save-minutes
  bool sync = false;                    // --save-sync: training waits for a save
  std::optional<double> grace_s;        // --grace: maximum seconds from a signal to the exit
  bool allow_small_disk = false;  // --allow-small-disk: --output may be too small at the start
  int64_t max_save_failures = 3;  // --save-failures: saves in a row that may fail
};

// The flag --report_to, with which Trainer enables monitors.
struct ReportTo {
  bool tensorboard = false;
  bool csv = false;
  std::vector<std::string> services;  // named services: replaced by files
  std::string directory;              // where they write: --logging_dir; empty: runs/ in --output
};

// Values of the command line. An empty string or an unset optional means "not given"; the flag's
// help describes the default.
struct Flags {
  std::string model;                   // --model: Hugging Face directory
  std::string model_name;              // the same as it was typed, a name on the hub perhaps
  std::vector<std::string> data;       // --data: PATH or PATH:WEIGHT (data/records/data_files.h)
  std::vector<std::string> eval_data;  // --eval-data: the same without weights
  std::string output;                  // --output: directory for the fine-tuned model
  std::string config;           // --deepspeed, --deepspeed_config: file, or base64 of its text
  std::string metrics;          // --metrics: one JSON object per line
  data::RecordOptions records;  // chat_template: --chat-template
  bool train_on_given = false;  // otherwise of what is usual
  std::optional<data::TokenType> token_type;             // --token-dtype: of .bin files
  data::LongText long_text = data::LongText::kTruncate;  // --long-text
  bool long_text_given = false;                          // otherwise the other spellings decide
  data::OnLong on_long = data::OnLong::kCut;             // --on-long
  data::OnBadRecord on_bad_record = data::OnBadRecord::kFail;  // --on-bad-record
  data::TokenCacheOptions token_cache = {.enabled = true};     // --token-cache
  bool overwrite_cache = false;                                // --overwrite_cache
  std::optional<double> val_split;   // --val-split: below 1 a fraction of the samples
  bool packing = false;              // --packing
  std::optional<bool> eval_packing;  // --eval_packing; unset: as `packing`
  bool overwrite = false;
  bool print_config = false;
  bool deterministic = false;  // --deterministic: a GPU run repeats bit by bit

  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> seq_len;          // --seq-len: positions of a sample
  std::optional<int64_t> max_length;       // --max-length: ids of a sample, one more than positions
  std::optional<int64_t> inspect_samples;  // --inspect-samples: how many are printed
  bool inspect_json = false;               // --inspect-format json
  bool tokenize = false;                   // --tokenize: --output is the prefix of the files
  bool merge = false;                      // --merge: writes --model and --adapter as one model
  bool shuffle = true;
  bool group_by_length = false;             // --group-by-length
  std::optional<int64_t> eval_micro_batch;  // --eval-micro-batch
  std::optional<int64_t> timeout_s;         // --timeout: of a collective

  std::optional<c10::ScalarType> save_dtype;  // --save-dtype; unset: as it was trained

  std::optional<int64_t> max_train_samples;  // the first ones of --data
  std::optional<int64_t> max_eval_samples;
  bool eval_only = false;
  Intervals intervals;  // what happens during the run, and when
  StateFlags state;
  ResumeFlags resume;
  std::optional<StepRange> trace_steps;  // --trace-steps
  ReportTo report_to;                    // monitors in addition to those of the configuration
  bool use_cpu = false;                  // --use_cpu: overrides DS_ACCELERATOR

  std::string adapter;         // --adapter: directory of the adapter to continue
  configs::FlagValues values;  // values that a ds_config.json can also set
  configs::Diagnostics notes;
  std::vector<HfRequest> hf_requests;  // requests that the run must fulfill by itself
  Spellings spellings;                 // for messages

  // Returns whether some samples are evaluated only.
  bool has_eval_data() const { return !eval_data.empty() || val_split.has_value(); }

  // Returns whether nothing is trained: --print-config, --inspect-samples, --tokenize, --merge.
  bool only_prints() const {
    return print_config || inspect_samples.has_value() || tokenize || merge;
  }

  std::string answer;  // text for --help or --version; no other field is set then
};

// Parses `arguments`, without the program's name; a single one that ends in .json is a file of
// flags. Throws one Error with all problems: unknown flags with the nearest known name, values that
// do not parse, flags that contradict each other or miss one that they require.
Flags parse_flags(std::vector<std::string> arguments);

}  // namespace zeroth::trainer
