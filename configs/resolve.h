// Resolution of a ds_config.json and the command line to a Config.
//
//   Document document = load("ds_config.json");               // or Document{} without a file
//   BatchConfig batch = resolve_batch(document, flags, ranks); // then count the run's steps
//   Resolved resolved = resolve(document, flags, {ranks, hidden_size, steps});
//
// Every function here is pure except load, which reads the file, and resolve, which makes an
// nvme_path absolute and checks whether it exists. One zeroth::Error reports all errors in a
// configuration: those of the file, of the flags, and of values that do not fit together. Each is
// one line that begins with the JSON path ("zero_optimization.stage") or the flag.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "configs/diagnostic.h"

namespace zeroth::configs {

// FlagValues contains the flags of the command line; an unset member means "not given". A flag
// fills a key that is absent or "auto". If the file has another value, the flag must equal it.
struct FlagValues {
  // The line is spelled for Hugging Face's Trainer: omitted flags have Trainer's defaults, and
  // flags beside a file have Trainer's meaning.
  bool for_trainer = false;
  std::optional<int64_t> micro_batch;   // --micro-batch
  std::optional<int64_t> accumulation;  // --accumulation
  std::optional<int64_t> global_batch;  // --global-batch
  // --optim: a type as in optimizer.type; no effect beside a section of the file.
  std::optional<std::string_view> optimizer;
  std::optional<double> lr;                    // --lr, default 5e-5
  std::optional<double> weight_decay;          // --weight-decay, default 0
  std::optional<std::array<double, 2>> betas;  // --betas, default 0.9 0.999
  std::optional<double> eps;                   // --eps, default 1e-8
  std::optional<double> max_grad_norm;         // --max-grad-norm, default 1.0; 0: no clipping
  std::optional<Precision> precision;          // --bf16, --fp16, --fp32
  std::optional<uint64_t> seed;                // --seed, default 42
  // --warmup-steps. Without a scheduler section and --lr_scheduler_type: linear from 0 to lr, then
  // constant.
  std::optional<int64_t> warmup_steps;
  // --warmup-ratio, in [0, 1]: the fraction of the run's steps that are warm-up steps, rounded up.
  // An error together with --warmup-steps.
  std::optional<double> warmup_ratio;
  std::optional<bool> no_decay;              // --no-decay, default: defaults_for()
  std::optional<LossMean> loss_mean;         // --loss-mean token | micro-batch
  std::optional<OnNonFinite> on_non_finite;  // --on-non-finite skip | fail
  std::optional<double> dropout;             // --dropout, in [0, 1)
  std::optional<bool> drop_last;             // --drop-last
  // --lr_scheduler_type and --lr_scheduler_kwargs (a JSON object); default: defaults_for(). With a
  // scheduler section they have no effect if the line is spelled for Trainer. Otherwise the type
  // must have the same shape: constant for WarmupLR, linear for WarmupDecayLR, cosine for
  // WarmupCosineLR.
  std::optional<HfSchedule::Type> schedule;
  std::string schedule_kwargs;
  bool accept_uncompressed = false;  // --accept-uncompressed: 1-bit optimizers without compression
  bool strict = false;               // --strict: every unknown key is an error
  // Global batch of a resumed run so far. It is kept unless another one is given, and can be
  // partitioned over any number of ranks. --allow-batch-change: a batch that is given per rank
  // takes precedence.
  std::optional<int64_t> previous_batch;
  bool allow_batch_change = false;
  // Resolved::rank_batch at the start of a resumed run. Another one is an error unless the batch
  // may change or the global batch is the same.
  std::optional<int64_t> previous_rank_batch;
  // Set in a later restart attempt: previous_batch is kept whatever is given, in micro-batches of
  // at most this many samples. A note reports that another batch would result otherwise.
  std::optional<int64_t> previous_micro_batch;
  // --gradient-checkpointing[=N]: RecomputeConfig::every_nth_block, at least 1.
  std::optional<int64_t> gradient_checkpointing;
  std::optional<int64_t> tensor_parallel;  // --tensor-parallel, default 1: layers are not split
  std::optional<int64_t> pipeline_parallel, virtual_stages;  // PipelineConfig's, like the next
  std::optional<std::string> pipeline_schedule;
  // --use_peft: LoraConfig::enabled, also of a section lora; what is omitted has TRL's defaults
  // then.
  bool use_peft = false;
  std::optional<int64_t> lora_r;       // --lora_r, default 16
  std::optional<double> lora_alpha;    // --lora_alpha, default 32
  std::optional<double> lora_dropout;  // --lora_dropout, default 0.05
  std::optional<bool> use_rslora;      // --use_rslora, default false
  // --lora_target_modules; empty: not given. One word is a regular expression or all-linear, as in
  // TRL; one without a character of a regular expression is a name, as several words are.
  std::vector<std::string> lora_target_modules;
  std::vector<std::string> lora_modules_to_save;  // --lora_modules_to_save
  // --load_in_4bit: QuantizationConfig::load_in_4bit. It is NF4, TRL's default, unless
  // --bnb_4bit_quant_type requests another type, which is an error.
  bool load_in_4bit = false;
  std::string bnb_4bit_quant_type;           // --bnb_4bit_quant_type; empty: not given
  std::optional<bool> use_bnb_nested_quant;  // --use_bnb_nested_quant, default false
};

// Defaults has the defaults of flags that a command line omits, one set of values for each spelling
// of the command line. A line for Hugging Face's Trainer (FlagValues::for_trainer) has Trainer's
// defaults, so that it means the same here. Defaults that both share (rate, betas, batch, seed) are
// defined where they are used.
struct Defaults {
  double epochs = 1;
  // True: an epoch ends with a step over its remaining samples. False: steps continue across the
  // end of an epoch, and only the last step of the run may be short.
  bool whole_epochs = false;
  // Samples that a rank evaluates at once. Unset: as many as it trains at once.
  std::optional<int64_t> eval_micro_batch = {};
  // Schedule if the file has no scheduler. Unset: a constant rate, after DeepSpeed's warm-up if
  // --warmup-steps is set.
  std::optional<HfSchedule::Type> schedule = {};
  // True: norm weights and biases are not decayed if the file has no optimizer. A file's optimizer
  // decays all parameters, under Trainer too: transformers passes them in one group.
  bool no_decay = false;
};

const Defaults& defaults_for(const FlagValues& flags);

// RunFacts contains the properties of the run that "auto" and the batch sizes depend on.
struct RunFacts {
  // Number of all ranks of the run.
  int64_t world_size = 1;
  // Hidden size of the model. 0: unknown; then "auto" bucket sizes are an error.
  int64_t hidden_size = 0;
  // Optimizer steps of the run. Unset: unknown; then an "auto" total_num_steps is an error.
  std::optional<int64_t> total_steps = {};
};

// Returns section lora with the keys of an adapter_config.json. Null means the default, and names
// that the key table does not have are those of other versions of peft. Throws one Error that lists
// each value that is malformed or not supported.
LoraConfig parse_adapter_config(const nlohmann::ordered_json& keys, const std::string& name);

struct CheckedKeys;  // configs/schema/check.h

// A Document is a configuration file whose keys have been checked one by one. It is cheap to copy.
// It keeps the errors found; resolve_batch and resolve throw them together with their own.
class Document {
 public:
  Document();  // no file: every value comes from flags and defaults
  explicit Document(std::shared_ptr<const CheckedKeys> keys) : keys_(std::move(keys)) {}

  const CheckedKeys& keys() const { return *keys_; }

 private:
  std::shared_ptr<const CheckedKeys> keys_;
};

// Reads DEEPSPEED_ELASTICITY_CONFIG and a configuration: a file, JSON text that begins with {, or,
// if no such file exists, base64 (plain or URL-safe) of JSON. JSON may contain //, /**/ and #
// comments. Throws an Error for a file that is unreadable (its path) or invalid (file:line:column,
// JSON path).
Document load(const std::string& file_or_base64);

// Parses a text like load(). `name` is the name of the file in messages.
Document parse_text(const std::string& text, const std::string& name);

// Origins contains the source of each value, by the key's path: "file", "--lr", "default", or the
// rule that resolved an "auto": "auto: hidden size squared".
using Origins = std::map<std::string, std::string>;

// Resolved is a Config with its origins and diagnostics.
struct Resolved {
  Config config;
  Origins origins;
  Diagnostics notes;
  // Samples per step that file and flags request for each rank; 0 if they name the global batch. A
  // resumed run that keeps its batch keeps this number, too.
  int64_t rank_batch = 0;
  // Sections of external services that the file enables, "wandb" or "comet". The program does not
  // contact any of them.
  std::vector<std::string> services = {};
};

// Returns the three batch values by DeepSpeed's rules, for a run of `world_size` ranks. Throws all
// errors that can be found without the model's facts.
BatchConfig resolve_batch(const Document& document, const FlagValues& flags, int64_t world_size);

// Returns every value. Throws an Error with all errors.
Resolved resolve(const Document& document, const FlagValues& flags, const RunFacts& facts);

// Returns the configuration as indented JSON in ds_config spelling, for --print-config. With
// origins, each value is followed by its origin in a comment. The text loads back to the same
// Config, except for values without a key: the seed, and those of --gradient-checkpointing,
// --lr_scheduler_type, --no-decay, --loss-mean, --on-non-finite and --dropout.
std::string to_json(const Config& config, const Origins& origins = {});

// Return one line about the learning rate and the optimizer. A checkpoint stores the line of a
// Hugging Face schedule in its fingerprint: with another wording a resumed run needs --allow-change
// scheduler.
std::string schedule_text(const SchedulerConfig& scheduler);
std::string optimizer_text(const Config& config);

// Returns the keys of a file that differ between `before` and `after`, with the values of `after`,
// in one line: "\"zero_optimization\": {\"stage\": 2}". A section contains all of its values that
// are not the default. Returns an empty text if no key changes.
std::string changed_keys(const Config& before, const Config& after);

}  // namespace zeroth::configs
