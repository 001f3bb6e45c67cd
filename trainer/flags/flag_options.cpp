// The options of the command line, by the group in which --help shows them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <limits>
#include <system_error>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "trainer/flags/flag_rules.h"

namespace zeroth::trainer {
namespace {

// Returns why a text is no whole number of at most `max`; otherwise sets `number`.
std::string parse_integer(const std::string& text, int64_t max, std::optional<int64_t>& number) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (rest != end || error == std::errc::invalid_argument) return "must be a whole number";
  const bool too_large = error == std::errc::result_out_of_range && text[0] != '-';
  if (too_large || value > max) return fmt::format("must be at most {}", max);
  if (error != std::errc{}) return "is too small";
  number = value;
  return "";
}

// Parses "3" or "3:5"; returns why it cannot, or "".
std::string parse_steps(const std::string& text, std::optional<StepRange>& steps) {
  const size_t colon = text.find(':');
  std::optional<int64_t> first, last;
  std::string error = parse_integer(text.substr(0, colon), kMaxSteps, first);
  if (error.empty()) error = parse_integer(text.substr(colon + 1), kMaxSteps, last);
  if (!error.empty()) return error;
  if (*first < 1 || *last < *first) return "must be a step from 1, or the first and the last one";
  if (*last - *first >= kMaxTracedSteps)
    return fmt::format("must be at most {} steps", kMaxTracedSteps);
  steps = {*first, *last};
  return "";
}

constexpr int kMaxDataPaths = 1000;
constexpr int kMaxModules = 10'000;

// FlagOptions adds the options to an app, a function for each group of --help. CLI11 itself reads
// 010 as octal and clamps numbers that are too large, so numbers are parsed here: one that does not
// fully parse in base 10 is appended to the errors and leaves the option unset. Nothing is owned.
class FlagOptions {
 public:
  FlagOptions(CLI::App& app, RawFlags& raw) : app_(app), raw_(raw) {}

  void add_files() {
    app_.option_defaults()->group("Files");
    add("--model", flags_.model, "DIR", "Hugging Face model folder; random weights if it has none");
    add("--data", flags_.data, "PATH[:WEIGHT]",
        "training samples: files (.jsonl, .json, .csv, .parquet, .arrow, .txt, .bin of token ids; "
        "also .gz and .zst), folders or patterns; with weights, shares of the samples")
        ->expected(1, kMaxDataPaths);
    add("--eval-data", flags_.eval_data, "PATH", "samples to evaluate on")
        ->expected(1, kMaxDataPaths);
    add("--val-split", flags_.val_split,
        "without --eval-data: set X samples of --data aside for it, below 1 such a fraction");
    add("--deepspeed", raw_.deepspeed, "FILE", "ds_config.json, or base64 of its text")
        ->expected(0, 1);
    add("--deepspeed_config", raw_.deepspeed_config, "FILE", "same as --deepspeed");
    app_.add_flag("--strict", values_.strict,
                  "treat keys in it that DeepSpeed would ignore as errors");
    add("--metrics", flags_.metrics, "FILE", "one JSON object per step");
  }

  void add_data() {
    app_.option_defaults()->group("Data");
    add("--data-format", flags_.records.format, "NAME",
        "format of the records (default: by the first one): text, prompt-completion, messages, "
        "sharegpt, alpaca, ...");
    add("--dataset", raw_.dataset, "NAMES",
        "entries of LLaMA-Factory's dataset_info.json, as --data DIR/dataset_info.json:NAME");
    add("--dataset_dir", raw_.dataset_dir, "DIR", "where that is (default: data)");
    add("--text-field", flags_.records.text_field, "NAME", "record field of a text");
    add("--prompt-field", flags_.records.prompt_field, "NAME",
        "record field of the prompt, not trained on");
    add("--completion-field", flags_.records.completion_field, "NAME",
        "record field of the completion, trained on");
    add("--messages-field", flags_.records.messages_field, "NAME",
        "record field of a conversation");
    add("--train-on", raw_.train_on, "WHAT",
        "tokens that are trained: all, completion (default for pairs), assistant (default for "
        "conversations) or last-assistant");
    add("--assistant_only_loss", raw_.assistant_only_loss, "BOOL",
        "false: --train-on all, for conversations");
    add("--completion_only_loss", raw_.completion_only_loss, "BOOL",
        "false: --train-on all, for pairs");
    add("--chat-template", raw_.chat_template, "FILE",
        "chat template in place of the model's; --output gets it, too");
    add("--chat-template-kwargs", flags_.records.chat_template_kwargs, "JSON",
        "arguments for the chat template, an object");
    const auto set_separator = [&flags = flags_](const std::string& text) {
      flags.records.separator = text;  // also ''
    };
    app_.add_option_function<std::string>(
            "--separator", set_separator,
            "text between prompt and completion, not trained on, with escapes \\n and \\t "
            "(default: a newline; none between the fields prompt and completion)")
        ->option_text("TEXT");
    add("--long-text", raw_.long_text, "HOW",
        "records of one text: cut each at --seq-len (default), or chunk: join all and "
        "split them into windows");
    add("--on-long", raw_.on_long, "HOW",
        "records of more than --seq-len positions: cut them at the end (default), drop them, split "
        "each into several samples, or fail");
    add("--on-bad-record", raw_.on_bad_record, "HOW",
        "records that are not valid: fail (default), or skip and count them");
    add("--token-cache", raw_.token_cache, "DIR",
        "folder for the tokens of the data, which later runs use again (default: .zeroth-tokens "
        "beside a file of 1 MiB or more; none: no folder)");
    app_.add_flag("--overwrite_cache", flags_.overwrite_cache,
                  "read the data anew and replace its tokens in the cache");
    app_.add_flag("--group-by-length", flags_.group_by_length,
                  "put samples of similar length into a batch: sort each 50 batches by length");
    app_.add_flag("--packing", flags_.packing,
                  "put several samples into a row; none sees another, and losses stay the same");
    add("--eval_packing", flags_.eval_packing, "BOOL", "also of --eval-data (default: --packing)");
    add("--token-dtype", raw_.token_dtype, "TYPE",
        "ids of .bin files: uint16 (vocabulary up to 65536) or uint32 (larger)");
  }

  void add_saving() {
    app_.option_defaults()->group("Saving");
    add("--output", flags_.output, "DIR", "folder for the fine-tuned model");
    app_.add_flag("--deterministic", flags_.deterministic,
                  "make GPU runs bit-identical, with slower attention; CPU runs always are");
    app_.add_flag("--overwrite", flags_.overwrite, "replace an --output that is not empty");
    add("--save-every", intervals_.save_every,
        "save a checkpoint, DIR/checkpoints/step-N, every X steps, or below 1 every such "
        "fraction of all steps");
    add("--save-minutes", intervals_.save_minutes,
        "also save when X minutes have passed since the last checkpoint");
    add("--save_strategy", intervals_.save_strategy, "WORD", "no, steps, epoch or best");
    add("--save_total_limit", intervals_.save_total_limit, kMaxSteps,
        "checkpoints to keep, the newest and the best (default 2; 0 keeps all)");
    add("--save_only_model", flags_.state.only_model, "BOOL",
        "save only the model in checkpoints: no run can resume from them");
    app_.add_flag("--save-sync", flags_.state.sync,
                  "training waits while a checkpoint is written: needs no memory for copies");
    app_.add_flag(
        "--allow-small-disk", flags_.state.allow_small_disk,
        "start even if DIR has less free space than the run writes; the model waits for space");
    add("--save-failures", raw_.save_failures, kMaxSteps,
        "failed saves in a row that end the run (default 3)");
    add("--grace", flags_.state.grace_s,
        "seconds from SIGTERM, SIGINT or SIGHUP to the end: skip the checkpoint if the last "
        "one took longer to write");
    add("--load_best_model_at_end", intervals_.load_best_model_at_end, "BOOL",
        "save the model with the best evaluation in DIR");
    add("--resume", raw_.resume, "[auto|FOLDER]",
        "resume from the newest checkpoint of --output (auto: start from scratch if there "
        "is none), or from FOLDER")
        ->expected(0, 1);
    app_.add_flag(
        "--allow-batch-change", flags_.resume.allow_batch_change,
        "a resumed run may change its global batch size; it continues with the next samples");
    add("--allow-change", flags_.resume.may_change, "KEY",
        "a resumed run may change this key of the optimizer or scheduler: optimizer.params.lr")
        ->allow_extra_args(false);
    add("--metric_for_best_model", intervals_.metric_for_best_model, "WORD", "loss");
    add("--greater_is_better", intervals_.greater_is_better, "BOOL", "a greater loss is better");
    add("--save-dtype", raw_.save_dtype, "TYPE",
        "precision of saved weights: fp32 (masters), bf16 or fp16 (default: that of training)");
  }

  void add_length() {
    app_.option_defaults()->group("Length");
    add("--steps", flags_.steps, kMaxSteps, "optimizer steps; the data repeats as needed");
    add("--max_train_samples", flags_.max_train_samples, kMaxSteps,
        "use only the first N records of --data, or the first N windows of a text");
    add("--epochs", flags_.epochs,
        "passes over the data (default 1); the last step takes the remaining samples");
    add("--seq-len", flags_.seq_len, kMaxRows,
        "positions per sample (default: as many as the model has, at most 1024)");
    add("--max-length", flags_.max_length, kMaxRows,
        "tokens per sample, the first of which is not a target: --seq-len + 1");
    app_.add_flag("--no-shuffle", raw_.no_shuffle, "use the samples in file order");
    app_.add_flag("--drop-last", raw_.drop_last,
                  "drop the incomplete global batch at the end of an epoch");
    add("--seed", raw_.seed, std::numeric_limits<int64_t>::max(),
        "seed of sample order and random weights (default 42)");
  }

  void add_batch() {
    app_.option_defaults()->group("Batch and memory");
    add("--micro-batch", values_.micro_batch, kMaxRows, "samples that a rank runs at once");
    add("--accumulation", values_.accumulation, kMaxRows, "micro-batches per step and rank");
    add("--global-batch", values_.global_batch, kMaxRows, "samples per step over all ranks");
    add("--tensor-parallel", values_.tensor_parallel, kMaxRows,
        "neighboring ranks over which every layer is split (default 1)");
    add("--pipeline-parallel", values_.pipeline_parallel, kMaxRows,
        "stages that divide the model's blocks among them (default 1)");
    add("--pipeline-schedule", values_.pipeline_schedule, "NAME",
        "1f1b, gpipe, interleaved, zb-h1, zbv or breadth-first (default 1f1b)");
    add("--virtual-stages", values_.virtual_stages, kMaxRows,
        "chunks of neighboring blocks per stage (default: what the schedule needs)");
    app_.add_flag("--gradient-checkpointing", raw_.gradient_checkpointing,
                  "recompute every N-th block (default 1) in backward: only its input is kept")
        ->option_text("[=N]");
    app_.add_flag("--bf16", raw_.bf16, "train in bfloat16 with fp32 masters");
    app_.add_flag("--fp16", raw_.fp16, "train in float16 with fp32 masters and loss scaling");
    app_.add_flag("--fp32", raw_.fp32, "train in float32 (the default)");
  }

  void add_adapters() {
    app_.option_defaults()->group("Adapters");
    app_.add_flag("--use_peft", values_.use_peft,
                  "freeze the model and train LoRA adapters, as \"lora\" in ds_config.json does");
    add("--adapter", flags_.adapter, "DIR",
        "continue the adapter in DIR, which peft or finetune saved; --model is its base");
    add("--lora_r", values_.lora_r, kMaxRows, "rank of the adapters (default 16)");
    add("--lora_alpha", values_.lora_alpha, "scale: results are times X / rank (default 32)");
    add("--lora_dropout", values_.lora_dropout, "dropout of their inputs (default 0.05)");
    add("--lora_target_modules", raw_.lora_target_modules, "NAME",
        "modules with adapters: names, all-linear, or a regular expression of whole paths "
        "(default: peft's for the model)")
        ->expected(1, kMaxModules);
    add("--lora_modules_to_save", raw_.lora_modules_to_save, "NAMES",
        "modules to train in full, too")
        ->expected(1, kMaxModules);
    add("--use_rslora", values_.use_rslora, "BOOL", "scale: results are times X / sqrt(rank)");
    app_.add_flag("--load_in_4bit", values_.load_in_4bit,
                  "keep the frozen weights of the layers' products in NF4 (QLoRA)");
    add("--use_bnb_nested_quant", values_.use_bnb_nested_quant, "BOOL",
        "quantize the scales of these weights, too");
    add("--bnb_4bit_quant_type", values_.bnb_4bit_quant_type, "TYPE", "nf4");
  }

  void add_optimizer() {
    app_.option_defaults()->group("Optimizer");
    add("--lr", values_.lr, "learning rate (default 5e-5)");
    add("--weight-decay", values_.weight_decay, "weight decay (default 0)");
    add("--betas", raw_.betas, "X X", "decay rates of both moments (default 0.9 0.999)")
        ->expected(2)
        ->delimiter(',');
    add("--eps", values_.eps, "epsilon of Adam (default 1e-8)");
    add("--warmup-steps", raw_.warmup_steps,
        "steps of linear warm-up (default 0), or below 1 a fraction of all steps");
    add("--warmup-ratio", values_.warmup_ratio, "linear warm-up as a fraction of all steps");
    add("--lr_scheduler_type", raw_.lr_scheduler_type, "TYPE",
        "constant (default), linear, cosine or another schedule of transformers");
    add("--lr_scheduler_kwargs", values_.schedule_kwargs, "JSON",
        "its arguments: '{\"num_cycles\": 2}'");
    add("--max-grad-norm", values_.max_grad_norm, "max gradient norm; 0 disables (default 1.0)");
    app_.add_flag("--accept-uncompressed", values_.accept_uncompressed,
                  "OneBitAdam, ZeroOneAdam and OneBitLamb may run without compression");
    app_.add_flag("--no-decay", raw_.no_decay, "no weight decay of norms and biases");
    add("--dropout", values_.dropout,
        "all dropout rates of the model (default: those of config.json)");
    add("--loss-mean", raw_.loss_mean, "OVER",
        "token: over all trained tokens (default); micro-batch: mean of means");
    add("--on-non-finite", raw_.on_non_finite, "DO",
        "a step whose gradient is not finite: skip it (default), or fail");
  }

  void add_evaluation() {
    app_.option_defaults()->group("Evaluation");
    add("--eval-every", intervals_.eval_every,
        "also evaluate every X steps, or below 1 every such fraction of all steps");
    add("--eval_strategy", intervals_.eval_strategy, "WORD", "no, steps or epoch");
    add("--eval_delay", intervals_.eval_delay, "no evaluation before X steps, or epochs");
    add("--eval_on_start", intervals_.eval_on_start, "BOOL", "evaluate before the first step, too");
    add("--do_train", raw_.do_train, "BOOL", "false: evaluate only");
    add("--do_eval", raw_.do_eval, "BOOL", "false: ignore --eval-data");
    app_.add_flag("--eval-only", flags_.eval_only, "evaluate on --eval-data (or --data), and exit");
    add("--max-eval-samples", flags_.max_eval_samples, kMaxSteps,
        "evaluate only the first N samples");
    add("--eval-micro-batch", flags_.eval_micro_batch, kMaxRows,
        "samples that a rank evaluates at once (default: --micro-batch)");
  }

  void add_reports() {
    app_.option_defaults()->group("Reports");
    add("--report_to", raw_.report_to, "NAME", "tensorboard, all or none, as in Trainer")
        ->delimiter(',');
    add("--logging_dir", raw_.logging_dir, "DIR",
        "folder for TensorBoard and CSV files (default: runs/ in --output)");
    add("--logging_strategy", intervals_.logging_strategy, "WORD",
        "when the loss is logged in trainer_state.json: no, steps or epoch");
    add("--logging_steps", intervals_.logging_steps,
        "log every X steps, or below 1 every such fraction of all steps (default 500)");
    add_number("--trace-steps", "N[:M]",
               "write what every rank does in step N, or N to M, to trace.json in --output, for "
               "Perfetto and chrome://tracing",
               [&steps = flags_.trace_steps](const std::string& text) {
                 return parse_steps(text, steps);
               });
    add("--logging_first_step", intervals_.logging_first_step, "BOOL", "also log the first step");
  }

  void add_other() {
    app_.option_defaults()->group("Other");
    add("--use_cpu", flags_.use_cpu, "BOOL", "compute on the CPU, as DS_ACCELERATOR=cpu");
    add("--timeout", flags_.timeout_s, kMaxSeconds,
        "seconds that a collective may wait for a rank (default 600)");
    add("--inspect-samples", flags_.inspect_samples, kMaxRows,
        "print the first N samples token by token, trained on or not, and exit");
    add("--inspect-format", raw_.inspect_format, "FORMAT",
        "of --inspect-samples: text (default), or json, a line per sample");
    app_.add_flag("--tokenize", flags_.tokenize,
                  "write the tokens of --data to OUTPUT.bin, .idx and .mask, and exit");
    app_.add_flag("--merge", flags_.merge,
                  "write --model with --adapter merged into it to --output, and exit");
    app_.add_flag("--print-config", flags_.print_config, "print the resolved values, and exit");
    app_.set_version_flag("--version", "finetune (Zeroth) " ZEROTH_VERSION,
                          "print the version, and exit");
    app_.set_help_flag("-h,--help", "print this help, and exit");
    app_.add_option("--local_rank,--local-rank", raw_.local_rank)->group("");  // hidden
  }

 private:
  template <typename T>
  CLI::Option* add(const std::string& name, T& value, const char* kind, const std::string& help) {
    return app_.add_option(name, value, help)->option_text(kind);
  }

  void add(const std::string& name, std::optional<int64_t>& value, int64_t max,
           const std::string& help) {
    add_number(name, "N", help,
               [&value, max](const std::string& text) { return parse_integer(text, max, value); });
  }

  void add(const std::string& name, std::optional<double>& value, const std::string& help) {
    add_number(name, "X", help, [&value](const std::string& text) {
      value = parse_number<double>(text);
      return value ? "" : "must be a number";
    });
  }

  // Adds an option whose text is converted by `parse`, which returns why it cannot, or "".
  void add_number(const std::string& name, const char* kind, const std::string& help,
                  const std::function<std::string(const std::string&)>& parse) {
    const auto read = [&errors = raw_.errors, name, parse](const CLI::results_t& results) {
      const std::string& text = results.front();
      if (text.starts_with("--")) return true;  // another flag, which parse_flags reports
      const std::string error = parse(text);
      if (!error.empty()) errors.push_back(fmt::format("{} {}: {}", name, shortened(text), error));
      return true;
    };
    app_.add_option(name, CLI::callback_t(read), help)->option_text(kind);
  }

  CLI::App& app_;
  RawFlags& raw_;
  Flags& flags_ = raw_.flags;
  configs::FlagValues& values_ = flags_.values;
  RawIntervals& intervals_ = raw_.intervals;
};

}  // namespace

void add_options(CLI::App& app, RawFlags& raw) {
  FlagOptions options(app, raw);
  options.add_files();
  options.add_data();
  options.add_saving();
  options.add_length();
  options.add_batch();
  options.add_adapters();
  options.add_optimizer();
  options.add_evaluation();
  options.add_reports();
  options.add_other();
}

}  // namespace zeroth::trainer
