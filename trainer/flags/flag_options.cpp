// The options of the command line, by the group in which --help shows them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>

#include "base/text/printable.h"
#include "trainer/flags/flag_rules.h"

namespace zeroth::trainer {
namespace {

// Parses the full text. Returns invalid_argument also if something follows the number.
template <typename T>
std::errc parse_full(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return rest == end ? error : std::errc::invalid_argument;
}

// Returns whether another flag is in the place of a value; parse_flags reports it.
bool is_flag(const std::string& text) {
  return text.starts_with("--");
}

// NumberOptions adds options whose value is a number to an app. CLI11 itself reads 010 as octal and
// clamps values that are too large. A value that does not fully parse in base 10 is appended to
// `errors` and leaves the option unset. Nothing is owned.
class NumberOptions {
 public:
  NumberOptions(CLI::App& app, std::vector<std::string>& errors) : app_(app), errors_(errors) {}

  void add(const std::string& name, std::optional<int64_t>& value, int64_t max,
           const std::string& help);
  void add(const std::string& name, std::optional<double>& value, const std::string& help);

 private:
  CLI::App& app_;
  std::vector<std::string>& errors_;
};

void NumberOptions::add(const std::string& name, std::optional<int64_t>& value, int64_t max,
                        const std::string& help) {
  const auto read = [&errors = errors_, name, &value, max](const CLI::results_t& results) {
    const std::string& text = results.front();
    int64_t number = 0;
    const std::errc error = parse_full(text, number);
    if (is_flag(text)) return true;
    if (error == std::errc::invalid_argument) {
      errors.push_back(fmt::format("{} {}: must be a whole number", name, shortened(text)));
    } else if ((error == std::errc::result_out_of_range && text[0] != '-') || number > max) {
      errors.push_back(fmt::format("{} {}: must be at most {}", name, shortened(text), max));
    } else if (error != std::errc{}) {
      errors.push_back(fmt::format("{} {}: is too small", name, shortened(text)));
    } else {
      value = number;
    }
    return true;
  };
  app_.add_option(name, CLI::callback_t(read), help)->option_text("N");
}

void NumberOptions::add(const std::string& name, std::optional<double>& value,
                        const std::string& help) {
  const auto read = [&errors = errors_, name, &value](const CLI::results_t& results) {
    const std::string& text = results.front();
    double number = 0;
    const std::errc error = parse_full(text, number);
    if (error == std::errc{}) {
      value = number;
    } else if (!is_flag(text)) {
      errors.push_back(fmt::format("{} {}: must be a number", name, shortened(text)));
    }
    return true;
  };
  app_.add_option(name, CLI::callback_t(read), help)->option_text("X");
}

void add_word(CLI::App& app, const std::string& name, std::string& value, const std::string& help) {
  app.add_option(name, value, help)->option_text("WORD");
}

void add_truth(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  app.add_option(name, value, help)->option_text("BOOL");
}

void add_files(CLI::App& app, RawFlags& raw) {
  Flags& flags = raw.flags;
  app.option_defaults()->group("Files");
  app.add_option("--model", flags.model, "Hugging Face model folder; random weights if it has none")
      ->option_text("DIR");
  app.add_option("--data", flags.data, "training samples: .jsonl, .json, .txt or .bin (token ids)")
      ->option_text("FILE");
  app.add_option("--eval-data", flags.eval_data, "samples to evaluate on")->option_text("FILE");
  app.add_option("--deepspeed", raw.deepspeed, "ds_config.json, or base64 of its text")
      ->expected(0, 1)
      ->option_text("FILE");
  app.add_option("--deepspeed_config", raw.deepspeed_config, "same as --deepspeed")
      ->option_text("FILE");
  app.add_flag("--strict", flags.values.strict,
               "treat keys in it that DeepSpeed would ignore as errors");
  app.add_option("--metrics", flags.metrics, "one JSON object per step")->option_text("FILE");
  app.add_option("--prompt-field", flags.prompt_field, "record field of the prompt, not trained on")
      ->option_text("NAME");
  app.add_option("--completion-field", flags.completion_field,
                 "record field of the completion, trained on")
      ->option_text("NAME");
  app.add_option_function<std::string>(
         "--separator", [&flags](const std::string& text) { flags.separator = text; },  // also ''
         "text between prompt and completion, not trained on, with escapes \\n and \\t (default: a "
         "newline; none between the fields prompt and completion)")
      ->option_text("TEXT");
  app.add_option("--long-text", raw.long_text,
                 "records of one text: cut each at --seq-len (default), or chunk: join all and "
                 "split them into windows")
      ->option_text("HOW");
  app.add_option("--token-dtype", raw.token_dtype,
                 "ids of .bin files: uint16 (vocabulary up to 65536) or uint32 (larger)")
      ->option_text("TYPE");
}

void add_saving(CLI::App& app, RawFlags& raw) {
  Flags& flags = raw.flags;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Saving");
  app.add_option("--output", flags.output, "folder for the fine-tuned model")->option_text("DIR");
  app.add_flag("--deterministic", flags.deterministic,
               "make GPU runs bit-identical, with slower attention; CPU runs always are");
  app.add_flag("--overwrite", flags.overwrite, "replace an --output that is not empty");
  RawIntervals& intervals = raw.intervals;
  numbers.add("--save-every", intervals.save_every,
              "save a checkpoint, DIR/checkpoints/step-N, every X steps, or below 1 every such "
              "fraction of all steps");
  numbers.add("--save-minutes", intervals.save_minutes,
              "also save when X minutes have passed since the last checkpoint");
  add_word(app, "--save_strategy", intervals.save_strategy, "no, steps, epoch or best");
  numbers.add("--save_total_limit", intervals.save_total_limit, kMaxSteps,
              "checkpoints to keep, the newest and the best (default 2; 0 keeps all)");
  add_truth(app, "--save_only_model", flags.state.only_model,
            "save only the model in checkpoints: no run can resume from them");
  app.add_flag("--save-sync", flags.state.sync,
               "training waits while a checkpoint is written: needs no memory for copies");
  app.add_flag(
      "--allow-small-disk", flags.state.allow_small_disk,
      "start even if DIR has less free space than the run writes; the model waits for space");
  numbers.add("--save-failures", raw.save_failures, kMaxSteps,
              "failed saves in a row that end the run (default 3)");
  numbers.add("--grace", flags.state.grace_s,
              "seconds from SIGTERM, SIGINT or SIGHUP to the end: skip the checkpoint if the last "
              "one took longer to write");
  add_truth(app, "--load_best_model_at_end", intervals.load_best_model_at_end,
            "save the model with the best evaluation in DIR");
  app.add_option("--resume", raw.resume,
                 "resume from the newest checkpoint of --output (auto: start from scratch if there "
                 "is none), or from FOLDER")
      ->expected(0, 1)
      ->option_text("[auto|FOLDER]");
  app.add_flag(
      "--allow-batch-change", flags.resume.allow_batch_change,
      "a resumed run may change its global batch size; it continues with the next samples");
  app.add_option(
         "--allow-change", flags.resume.may_change,
         "a resumed run may change this key of the optimizer or scheduler: optimizer.params.lr")
      ->allow_extra_args(false)
      ->option_text("KEY");
  add_word(app, "--metric_for_best_model", intervals.metric_for_best_model, "loss");
  app.add_option("--greater_is_better", intervals.greater_is_better, "a greater loss is better")
      ->option_text("BOOL");
  app.add_option(
         "--save-dtype", raw.save_dtype,
         "precision of saved weights: fp32 (masters), bf16 or fp16 (default: that of training)")
      ->option_text("TYPE");
}

void add_length(CLI::App& app, RawFlags& raw) {
  Flags& flags = raw.flags;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Length");
  numbers.add("--steps", flags.steps, kMaxSteps, "optimizer steps; the data repeats as needed");
  numbers.add("--max_train_samples", flags.max_train_samples, kMaxSteps,
              "use only the first N samples of --data");
  numbers.add("--epochs", flags.epochs,
              "passes over the data (default 1); the last step takes the remaining samples");
  numbers.add("--seq-len", flags.seq_len, kMaxRows,
              "positions per sample (default: as many as the model has, at most 1024)");
  numbers.add("--max-length", flags.max_length, kMaxRows,
              "tokens per sample, the first of which is not a target: --seq-len + 1");
  app.add_flag("--no-shuffle", raw.no_shuffle, "use the samples in file order");
  app.add_flag("--drop-last", raw.drop_last,
               "drop the incomplete global batch at the end of an epoch");
  numbers.add("--seed", raw.seed, std::numeric_limits<int64_t>::max(),
              "seed of sample order and random weights (default 42)");
}

void add_batch(CLI::App& app, RawFlags& raw) {
  auto& values = raw.flags.values;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Batch and memory");
  numbers.add("--micro-batch", values.micro_batch, kMaxRows, "samples that a rank runs at once");
  numbers.add("--accumulation", values.accumulation, kMaxRows, "micro-batches per step and rank");
  numbers.add("--global-batch", values.global_batch, kMaxRows, "samples per step over all ranks");
  numbers.add("--tensor-parallel", values.tensor_parallel, kMaxRows,
              "neighboring ranks over which every layer is split (default 1)");
  app.add_flag("--gradient-checkpointing", raw.gradient_checkpointing,
               "recompute every N-th block (default 1) in backward: only its input is kept")
      ->option_text("[=N]");
  app.add_flag("--bf16", raw.bf16, "train in bfloat16 with fp32 masters");
  app.add_flag("--fp16", raw.fp16, "train in float16 with fp32 masters and loss scaling");
  app.add_flag("--fp32", raw.fp32, "train in float32 (the default)");
}

void add_optimizer(CLI::App& app, RawFlags& raw) {
  auto& values = raw.flags.values;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Optimizer");
  numbers.add("--lr", values.lr, "learning rate (default 5e-5)");
  numbers.add("--weight-decay", values.weight_decay, "weight decay (default 0)");
  app.add_option("--betas", raw.betas, "decay rates of both moments (default 0.9 0.999)")
      ->expected(2)
      ->delimiter(',')
      ->option_text("X X");
  numbers.add("--eps", values.eps, "epsilon of Adam (default 1e-8)");
  numbers.add("--warmup-steps", raw.warmup_steps,
              "steps of linear warm-up (default 0), or below 1 a fraction of all steps");
  numbers.add("--warmup-ratio", values.warmup_ratio, "linear warm-up as a fraction of all steps");
  app.add_option("--lr_scheduler_type", raw.lr_scheduler_type,
                 "constant (default), linear, cosine or another schedule of transformers")
      ->option_text("TYPE");
  app.add_option("--lr_scheduler_kwargs", values.schedule_kwargs,
                 "its arguments: '{\"num_cycles\": 2}'")
      ->option_text("JSON");
  numbers.add("--max-grad-norm", values.max_grad_norm,
              "max gradient norm; 0 disables (default 1.0)");
  app.add_flag("--accept-uncompressed", values.accept_uncompressed,
               "OneBitAdam, ZeroOneAdam and OneBitLamb may run without compression");
  app.add_flag("--no-decay", raw.no_decay, "no weight decay of norms and biases");
  numbers.add("--dropout", values.dropout,
              "all dropout rates of the model (default: those of config.json)");
  app.add_option("--loss-mean", raw.loss_mean,
                 "token: over all trained tokens (default); micro-batch: mean of means")
      ->option_text("OVER");
  app.add_option("--on-non-finite", raw.on_non_finite,
                 "a step whose gradient is not finite: skip it (default), or fail")
      ->option_text("DO");
}

void add_evaluation(CLI::App& app, RawFlags& raw) {
  Flags& flags = raw.flags;
  RawIntervals& intervals = raw.intervals;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Evaluation");
  numbers.add("--eval-every", intervals.eval_every,
              "also evaluate every X steps, or below 1 every such fraction of all steps");
  add_word(app, "--eval_strategy", intervals.eval_strategy, "no, steps or epoch");
  numbers.add("--eval_delay", intervals.eval_delay, "no evaluation before X steps, or epochs");
  add_truth(app, "--eval_on_start", intervals.eval_on_start, "evaluate before the first step, too");
  app.add_option("--do_train", raw.do_train, "false: evaluate only")->option_text("BOOL");
  app.add_option("--do_eval", raw.do_eval, "false: ignore --eval-data")->option_text("BOOL");
  app.add_flag("--eval-only", flags.eval_only, "evaluate on --eval-data (or --data), and exit");
  numbers.add("--max-eval-samples", flags.max_eval_samples, kMaxSteps,
              "evaluate only the first N samples");
  numbers.add("--eval-micro-batch", flags.eval_micro_batch, kMaxRows,
              "samples that a rank evaluates at once (default: --micro-batch)");
}

void add_reports(CLI::App& app, RawFlags& raw) {
  RawIntervals& intervals = raw.intervals;
  NumberOptions numbers(app, raw.errors);
  app.option_defaults()->group("Reports");
  app.add_option("--report_to", raw.report_to, "tensorboard, all or none, as in Trainer")
      ->delimiter(',')
      ->option_text("NAME");
  app.add_option("--logging_dir", raw.logging_dir,
                 "folder for TensorBoard and CSV files (default: runs/ in --output)")
      ->option_text("DIR");
  add_word(app, "--logging_strategy", intervals.logging_strategy,
           "when the loss is logged in trainer_state.json: no, steps or epoch");
  numbers.add("--logging_steps", intervals.logging_steps,
              "log every X steps, or below 1 every such fraction of all steps (default 500)");
  add_truth(app, "--logging_first_step", intervals.logging_first_step, "also log the first step");
}

void add_other(CLI::App& app, RawFlags& raw) {
  app.option_defaults()->group("Other");
  add_truth(app, "--use_cpu", raw.flags.use_cpu, "compute on the CPU, as DS_ACCELERATOR=cpu");
  NumberOptions numbers(app, raw.errors);
  numbers.add("--timeout", raw.flags.timeout_s, kMaxSeconds,
              "seconds that a collective may wait for a rank (default 600)");
  numbers.add("--inspect-samples", raw.flags.inspect_samples, kMaxRows,
              "print the first N samples token by token, trained on or not, and exit");
  app.add_flag("--print-config", raw.flags.print_config, "print the resolved values, and exit");
  app.set_version_flag("--version", "finetune (Zeroth) " ZEROTH_VERSION,
                       "print the version, and exit");
  app.set_help_flag("-h,--help", "print this help, and exit");
  app.add_option("--local_rank,--local-rank", raw.local_rank)->group("");  // hidden
}

}  // namespace

void add_options(CLI::App& app, RawFlags& raw) {
  add_files(app, raw);
  add_saving(app, raw);
  add_length(app, raw);
  add_batch(app, raw);
  add_optimizer(app, raw);
  add_evaluation(app, raw);
  add_reports(app, raw);
  add_other(app, raw);
}

}  // namespace zeroth::trainer
