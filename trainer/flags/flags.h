// The command line of `finetune`.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/resolve.h"
#include "data/dataset.h"
#include "trainer/flags/hf_flag_table.h"
#include "trainer/flags/interval.h"
#include "trainer/flags/report_to.h"
#include "trainer/flags/resume_flags.h"
#include "trainer/flags/spellings.h"

namespace zeroth::trainer {

// Upper limits of counts: beyond them a mistake is likely, and products leave 64 bits.
inline constexpr int64_t kMaxSteps = 1'000'000'000'000'000;  // or samples of a run
inline constexpr int64_t kMaxRows = 100'000'000;             // or positions of one

inline constexpr int64_t kMaxSeconds = 1'000'000'000;  // of a wait

// What the command line says. An empty string or an unset optional means "not given"; what the
// value then is stands in the flag's help.
struct Flags {
  std::string model;      // --model: Hugging Face directory
  std::string data;       // --data: .txt, .bin or .jsonl
  std::string eval_data;  // --eval-data
  std::string output;     // --output: directory for the fine-tuned model
  std::string config;     // --deepspeed, --deepspeed_config: file, or base64 of its text
  std::string metrics;    // --metrics: one JSON object per line
  std::string prompt_field;
  std::string completion_field;
  std::optional<std::string> separator;                  // --separator, escapes resolved
  std::optional<data::TokenType> token_type;             // --token-dtype: of .bin files
  data::LongText long_text = data::LongText::kTruncate;  // --long-text
  bool long_text_given = false;                          // else it follows from the other spellings
  bool overwrite = false;
  bool print_config = false;
  bool deterministic = false;  // --deterministic: a GPU repeats a run bit by bit

  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> seq_len;          // --seq-len: positions of a sample
  std::optional<int64_t> max_length;       // --max-length: ids of a sample, one more than positions
  std::optional<int64_t> inspect_samples;  // --inspect-samples: how many are printed
  bool shuffle = true;
  std::optional<int64_t> eval_micro_batch;  // --eval-micro-batch
  std::optional<int64_t> timeout_s;         // --timeout: of a collective

  std::optional<c10::ScalarType> save_dtype;  // --save-dtype; unset: as it was trained

  std::optional<int64_t> max_train_samples;  // the first ones of --data
  std::optional<int64_t> max_eval_samples;
  bool eval_only = false;
  Intervals intervals;  // what happens on the way
  StateFlags state;
  ResumeFlags resume;
  ReportTo report_to;    // monitors beside those of the configuration
  bool use_cpu = false;  // --use_cpu, whatever DS_ACCELERATOR says

  configs::FlagValues values;  // those that a ds_config.json knows too
  configs::Diagnostics notes;
  std::vector<HfRequest> hf_requests;  // that the run has to fulfil by itself
  Spellings spellings;                 // for messages

  // Nothing is trained or written: --print-config, --inspect-samples.
  bool only_prints() const { return print_config || inspect_samples.has_value(); }

  std::string answer;  // text that --help or --version asks for; nothing else is filled then
};

// `arguments` without the program's name; one that ends in .json is a file of them. Throws one
// Error with all complaints: unknown flags with the nearest known name, values that do not parse,
// flags that contradict each other or lack one that they need.
Flags parse_flags(std::vector<std::string> arguments);

}  // namespace zeroth::trainer
