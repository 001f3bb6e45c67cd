// From a ds_config.json and the command line to a resolved Config.
//
//   Document document = load("ds_config.json");               // or Document{} without a file
//   BatchConfig batch = resolve_batch(document, flags, ranks); // then count the run's steps
//   Resolved resolved = resolve(document, flags, {ranks, hidden_size, steps});
//
// Every function here is pure but for load, which reads the file, and resolve, which makes an
// nvme_path absolute and looks whether it is there. All complaints about a configuration, those of
// the file, of the flags beside it and of values that do not fit together, come in one
// zeroth::Error: one line each, led by the JSON path ("zero_optimization.stage") or the flag.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "configs/diagnostic.h"

namespace zeroth::configs {

// What the command line says; unset means "not given". A flag fills a key that is absent or "auto";
// beside another value in the file it must be equal.
struct FlagValues {
  // The line is spelled for Hugging Face's Trainer: what it leaves out has Trainer's default, and
  // beside a file it means what it means there.
  bool for_trainer = false;
  std::optional<int64_t> micro_batch;          // --micro-batch
  std::optional<int64_t> accumulation;         // --accumulation
  std::optional<int64_t> global_batch;         // --global-batch
  std::optional<double> lr;                    // --lr, default 5e-5
  std::optional<double> weight_decay;          // --weight-decay, default 0
  std::optional<std::array<double, 2>> betas;  // --betas, default 0.9 0.999
  std::optional<double> eps;                   // --eps, default 1e-8
  std::optional<double> max_grad_norm;         // --max-grad-norm, default 1.0; 0: no clipping
  std::optional<Precision> precision;          // --bf16, --fp16, --fp32
  std::optional<uint64_t> seed;                // --seed, default 42
  // --warmup-steps; without a scheduler section and --lr_scheduler_type: linear from 0 to lr, then
  // constant.
  std::optional<int64_t> warmup_steps;
  // --warmup-ratio, in [0, 1]: the warm-up steps as a part of the run's, rounded up; beside
  // --warmup-steps an error.
  std::optional<double> warmup_ratio;
  std::optional<bool> no_decay;              // --no-decay, default: defaults_for()
  std::optional<LossMean> loss_mean;         // --loss-mean token | micro-batch
  std::optional<OnNonFinite> on_non_finite;  // --on-non-finite skip | fail
  std::optional<double> dropout;             // --dropout, in [0, 1)
  std::optional<bool> drop_last;             // --drop-last
  // --lr_scheduler_type and --lr_scheduler_kwargs, JSON of an object; default: defaults_for().
  // Beside a scheduler section they have no effect where the line is spelled for Trainer; else the
  // type has to be of the same shape, constant WarmupLR, linear WarmupDecayLR, cosine
  // WarmupCosineLR.
  std::optional<HfSchedule::Type> schedule;
  std::string schedule_kwargs;
  bool accept_uncompressed = false;  // --accept-uncompressed: 1-bit optimizers without compression
  bool strict = false;               // --strict: every unknown key is an error
  // Of a run that goes on: its global batch so far, which stays where no other one is given, and is
  // dealt to any number of ranks. --allow-batch-change: what is given for a rank goes first.
  std::optional<int64_t> previous_batch;
  bool allow_batch_change = false;
  // Resolved::rank_batch when it began: another one is refused unless the batch may change, or
  // comes to the same batch.
  std::optional<int64_t> previous_rank_batch;
  // Of a later round of a run: previous_batch stays whatever is given, in micro-batches of at most
  // so many samples, as in the rounds before; where another batch would have come out, a note says
  // so.
  std::optional<int64_t> previous_micro_batch;
  // --gradient-checkpointing[=N]: RecomputeConfig::every_nth_block, at least 1.
  std::optional<int64_t> gradient_checkpointing;
  std::optional<int64_t> tensor_parallel;  // --tensor-parallel, default 1: layers are whole
};

// Facts of the run that "auto" and the batch sizes depend on.
struct RunFacts {
  // All ranks of the run.
  int64_t world_size = 1;
  // Of the model. 0: unknown, then "auto" bucket sizes are an error.
  int64_t hidden_size = 0;
  // Optimizer steps of the run. Unset: unknown, then an "auto" total_num_steps is an error.
  std::optional<int64_t> total_steps = {};
};

struct CheckedKeys;  // configs/schema/check.h

// A configuration file whose keys were checked one by one. Cheap to copy. What is wrong with it is
// kept, and thrown by resolve_batch and resolve together with their own complaints.
class Document {
 public:
  Document();  // no file: every value comes from flags and defaults
  explicit Document(std::shared_ptr<const CheckedKeys> keys) : keys_(std::move(keys)) {}

  const CheckedKeys& keys() const { return *keys_; }
  const std::vector<std::string>& errors() const;

 private:
  std::shared_ptr<const CheckedKeys> keys_;
};

// Reads a file, JSON text that begins with {, or where no file of that name exists, base64 (plain
// or URL-safe) of the JSON itself, and DEEPSPEED_ELASTICITY_CONFIG. JSON with //, /**/, # comments.
// Throws Error for a file that is unreadable (its path) or wrong (file:line:column, JSON path).
Document load(const std::string& file_or_base64);

// The same for text at hand; `name` stands for the file in messages.
Document parse_text(const std::string& text, const std::string& name);

// Where the value of a key comes from, by the key's path: "file", "--lr", "default", or what made
// it of an "auto": "auto: hidden size squared".
using Origins = std::map<std::string, std::string>;

struct Resolved {
  Config config;
  Origins origins;
  Diagnostics notes;
  // Samples of a step that file and flags ask for on a rank, 0 where they name the global batch. A
  // resumed run that keeps its batch keeps this number, too.
  int64_t rank_batch = 0;
  // Sections of services that the file has on, "wandb" or "comet": none is reached from here.
  std::vector<std::string> services = {};
};

// Of `ranks` those that draw different samples: what the batch is dealt over.
inline int64_t data_ranks(const Config& config, int64_t ranks) {
  return ranks / config.tensor_parallel.size;
}

// The three batch values by DeepSpeed's rules, for a run of `world_size` ranks. Throws every
// complaint that can be known without the model's facts.
BatchConfig resolve_batch(const Document& document, const FlagValues& flags, int64_t world_size);

// Every value. Throws Error with all complaints.
Resolved resolve(const Document& document, const FlagValues& flags, const RunFacts& facts);

// The configuration as indented JSON in ds_config spelling, for --print-config; with origins, each
// value's stands behind it in a comment. Loads back to the same Config, but for what has no key:
// the seed and what --gradient-checkpointing, --lr_scheduler_type, --no-decay, --loss-mean,
// --on-non-finite and --dropout say.
std::string to_json(const Config& config, const Origins& origins = {});

// The keys of a file that differ between `before` and `after`, with the values of `after`, in one
// line: "\"zero_optimization\": {\"stage\": 2}". A section has all of its values that are not the
// default. Empty where no key changes.
std::string changed_keys(const Config& before, const Config& after);

}  // namespace zeroth::configs
