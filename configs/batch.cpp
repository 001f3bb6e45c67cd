#include <algorithm>
#include <cmath>

#include "configs/context.h"

namespace zeroth::configs {
namespace {

constexpr char kBatch[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kSteps[] = "gradient_accumulation_steps";
constexpr int64_t kDefaultMicro = 8;  // as Hugging Face's Trainer

struct Given {
  std::optional<int64_t> batch, micro, steps;
};

// Where a user changes a value: its key, or the flag that gave it.
const char* place(const Context& context, const char* path, const char* flag) {
  return context.keys.get<int64_t>(path) ? path : flag;
}

int64_t at_least_one(int64_t value) {
  return std::max<int64_t>(1, value);
}

int64_t nearest_multiple(int64_t value, int64_t of) {
  return at_least_one((value + of / 2) / of) * of;
}

BatchConfig fill_missing(const Given& given, int64_t ranks) {
  BatchConfig batch;
  batch.micro_batch_size = given.micro.value_or(1);
  batch.accumulation_steps = given.steps.value_or(1);
  if (!given.batch) {
    batch.train_batch_size = batch.micro_batch_size * batch.accumulation_steps * ranks;
    return batch;
  }
  batch.train_batch_size = *given.batch;
  if (!given.micro) {
    batch.micro_batch_size = at_least_one(*given.batch / ranks / batch.accumulation_steps);
  } else if (!given.steps) {
    batch.accumulation_steps = at_least_one(*given.batch / *given.micro / ranks);
  }
  return batch;
}

// "set train_batch_size to 34, or train_micro_batch_size_per_gpu to 16"
std::string remedies(const Context& context, const Given& given, const BatchConfig& batch) {
  const int64_t ranks = context.facts.world_size;
  const int64_t fixed = given.micro.value_or(1) * given.steps.value_or(1) * ranks;
  std::string text =
      fmt::format("set {} to {}", place(context, kBatch, "--global-batch"),
                  given.micro && given.steps ? fixed : nearest_multiple(*given.batch, fixed));
  const auto offer = [&](const std::optional<int64_t>& value, int64_t others, const char* name) {
    if (value && *given.batch % others == 0) {
      text += fmt::format(", or {} to {}", name, *given.batch / others);
    }
  };
  offer(given.micro, batch.accumulation_steps * ranks, place(context, kMicro, "--micro-batch"));
  offer(given.steps, batch.micro_batch_size * ranks, place(context, kSteps, "--accumulation"));
  return text;
}

}  // namespace

BatchConfig fill_batch(Context& context) {
  const CheckedKeys& keys = context.keys;
  const FlagValues& flags = context.flags;
  const int64_t ranks = context.facts.world_size;
  Given given{context.pick(kBatch, flags.global_batch, "--global-batch"),
              context.pick(kMicro, flags.micro_batch, "--micro-batch"),
              context.pick(kSteps, flags.accumulation, "--accumulation")};
  if (keys.is_bad(kBatch) || keys.is_bad(kMicro) || keys.is_bad(kSteps)) return {};
  if (!given.batch && !given.micro) {
    const bool only_steps = keys.get<int64_t>(kSteps) && !keys.has(kBatch) && !keys.has(kMicro);
    if (only_steps) {
      context.complain(
          "{} {} alone does not give the batch (train_batch_size = micro * accumulation {} * ranks "
          "{}): add {} or {}, or give --micro-batch or --global-batch",
          kSteps, *given.steps, *given.steps, ranks, kBatch, kMicro);
      return {};
    }
    given.micro = kDefaultMicro;
    context.note("no batch size given: {} {}, {} {}", kMicro, *given.micro, kSteps,
                 given.steps.value_or(1));
  }
  const BatchConfig batch = fill_missing(given, ranks);
  if (batch.train_batch_size != batch.micro_batch_size * batch.accumulation_steps * ranks) {
    context.complain("train_batch_size {} != micro {} * accumulation {} * ranks {}: {}",
                     batch.train_batch_size, batch.micro_batch_size, batch.accumulation_steps,
                     ranks, remedies(context, given, batch));
  }
  return batch;
}

}  // namespace zeroth::configs
