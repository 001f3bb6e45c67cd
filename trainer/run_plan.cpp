#include "trainer/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "configs/loader.h"
#include "data/tokenizer.h"
#include "engine/engine.h"
#include "model/build.h"
#include "model/output_folder.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kMostDefaultLength = 1024;

int64_t choose_seq_len(const Flags& flags, const model::ModelSpec& spec,
                       std::vector<std::string>& notes) {
  const int64_t length = flags.seq_len.value_or(std::min(spec.max_positions, kMostDefaultLength));
  if (length <= spec.max_positions) {
    if (!flags.seq_len) notes.push_back(fmt::format("no --seq-len: {} positions", length));
    return length;
  }
  if (spec.learned_positions) {
    throw Error("--seq-len {}: {} holds a table of {} positions; at most that many can be used",
                length, flags.model, spec.max_positions);
  }
  notes.push_back(
      fmt::format("--seq-len {} is beyond the {} positions that config.json names: rotary "
                  "embeddings are extended",
                  length, spec.max_positions));
  return length;
}

bool is_jsonl(const std::string& path) {
  return std::filesystem::path(path).extension() == ".jsonl";
}

void require_file(std::string_view flag, const std::string& path) {
  std::error_code failure;
  if (std::filesystem::exists(path, failure)) return;
  throw Error("{} {}: {}", flag, path, failure ? failure.message() : "no such file");
}

// Opens datasets of one run; they share a tokenizer that is read when the first one needs it.
class Opener {
 public:
  explicit Opener(const RunPlan& plan) : plan_(plan) {}

  std::unique_ptr<data::Dataset> open(std::string_view flag, const std::string& path) {
    const Flags& flags = plan_.flags;
    require_file(flag, path);
    const bool text = std::filesystem::path(path).extension() != ".bin";
    if (text && !tokenizer_) tokenizer_.emplace(data::Tokenizer::load(flags.model));
    data::DatasetOptions options{.path = path,
                                 .tokenizer = tokenizer_ ? &*tokenizer_ : nullptr,
                                 .seq_len = plan_.seq_len,
                                 .vocab_size = plan_.spec.vocab_size};
    // The fields are meant for those files that have any.
    const bool elsewhere = is_jsonl(flags.data) || is_jsonl(flags.eval_data);
    if (is_jsonl(path) || !elsewhere) {
      options.prompt_field = flags.prompt_field;
      options.completion_field = flags.completion_field;
    }
    return data::open_dataset(options);
  }

 private:
  const RunPlan& plan_;
  std::optional<data::Tokenizer> tokenizer_;
};

void open_data(RunPlan& plan) {
  const Flags& flags = plan.flags;
  Opener opener(plan);
  if (!flags.eval_only && !flags.data.empty()) plan.train = opener.open("--data", flags.data);
  if (!flags.eval_data.empty()) plan.eval = opener.open("--eval-data", flags.eval_data);
  if (!plan.eval && flags.eval_only && !flags.data.empty()) {
    plan.eval = opener.open("--data", flags.data);
  }
  if (!plan.eval) return;
  plan.eval_samples = plan.eval->size();
  if (flags.max_eval_samples) {
    plan.eval_samples = std::min(plan.eval_samples, *flags.max_eval_samples);
  }
}

// Unset when neither flags nor data say it (--print-config without --data).
std::optional<int64_t> count_steps(RunPlan& plan, int64_t global_batch) {
  if (plan.flags.steps) return plan.flags.steps;
  if (!plan.train) return std::nullopt;
  plan.train_samples = samples_of_epochs(plan.flags.epochs.value_or(1), plan.train->size());
  return (plan.train_samples + global_batch - 1) / global_batch;
}

}  // namespace

data::Deal RunPlan::train_deal(int64_t rank, int64_t world_size) const {
  return {.micro_batch = config.batch.micro_batch_size,
          .micro_steps = config.batch.accumulation_steps,
          .world = world_size,
          .rank = rank};
}

data::Deal RunPlan::eval_deal(int64_t rank, int64_t world_size) const {
  data::Deal deal = train_deal(rank, world_size);
  deal.micro_steps = 1;
  return deal;
}

int64_t samples_of_epochs(double epochs, int64_t samples) {
  const double wanted = std::round(epochs * static_cast<double>(samples));
  if (wanted > static_cast<double>(kMostSteps)) {
    throw Error("--epochs {}: {} samples each make more than {} samples", epochs, samples,
                kMostSteps);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(wanted));
}

RunPlan make_plan(Flags flags, int64_t world_size) {
  RunPlan plan;
  plan.flags = std::move(flags);
  const auto document =
      plan.flags.config.empty() ? configs::Document{} : configs::load(plan.flags.config);
  const auto batch = configs::resolve_batch(document, plan.flags.values, world_size);
  plan.spec = model::read_model_spec(plan.flags.model);
  if (!plan.flags.output.empty())
    model::OutputFolder::check(plan.flags.output, plan.flags.overwrite);
  std::vector<std::string> notes;
  plan.seq_len = choose_seq_len(plan.flags, plan.spec, notes);
  open_data(plan);
  const auto steps = count_steps(plan, batch.train_batch_size);
  auto resolved = configs::resolve(
      document, plan.flags.values,
      {.world_size = world_size, .hidden_size = plan.spec.hidden_size, .total_steps = steps});
  plan.total_steps = steps.value_or(0);
  plan.config = resolved.config;
  engine::check_config(model::build_blocks(plan.spec), plan.config, static_cast<int>(world_size));
  plan.notes = std::move(resolved.notes);
  if (plan.flags.eval_only) {  // its batch line says the one number that counts
    std::erase_if(plan.notes,
                  [](const std::string& note) { return note.starts_with("no batch size given"); });
  }
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

}  // namespace zeroth::trainer
