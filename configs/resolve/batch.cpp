#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/units.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr char kBatch[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kSteps[] = "gradient_accumulation_steps";
constexpr int64_t kDefaultMicro = 8;  // as Hugging Face's Trainer

struct Given {
  std::optional<int64_t> batch, micro, steps;
};

// What the batch is dealt over, in words: all ranks, where no two of them split a layer.
const char* ranks_word(const Context& context) {
  return context.data_ranks == context.facts.world_size ? "ranks" : "data ranks";
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

void tell_origins(Context& context, const Given& given) {
  const char* const ranks = ranks_word(context);
  if (!given.batch) context.origins[kBatch] = fmt::format("micro-batch * accumulation * {}", ranks);
  if (!given.micro)
    context.origins[kMicro] = fmt::format("global batch / accumulation / {}", ranks);
  if (!given.steps) {
    context.origins[kSteps] = given.batch && given.micro
                                  ? fmt::format("global batch / micro-batch / {}", ranks)
                                  : "default";
  }
}

// The micro-batch and accumulation nearest to the given ones whose product is `samples`.
std::pair<int64_t, int64_t> nearest_pair(const Given& given, int64_t samples) {
  std::pair<int64_t, int64_t> best{samples, 1};
  const auto distance = [&](const std::pair<int64_t, int64_t>& pair) {
    return std::abs(pair.first - given.micro.value_or(pair.first)) +
           std::abs(pair.second - given.steps.value_or(pair.second));
  };
  for (int64_t divisor = 1; divisor <= samples / divisor; ++divisor) {
    if (samples % divisor != 0) continue;
    const std::pair low(divisor, samples / divisor), high(samples / divisor, divisor);
    best = std::min({best, low, high},
                    [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  }
  return best;
}

// What to do where neither value alone can be changed to fit the global batch.
std::string pair_remedy(const Context& context, const Given& given) {
  const int64_t ranks = context.data_ranks;
  if (*given.batch % ranks != 0) {
    return fmt::format("; no micro * accumulation gives {} on {} {}", *given.batch, ranks,
                       ranks_word(context));
  }
  const auto [micro, steps] = nearest_pair(given, *given.batch / ranks);
  std::string text;
  const auto offer = [&](const std::optional<int64_t>& value, const char* name, int64_t to) {
    if (value) text += fmt::format("{} {} to {}", text.empty() ? ", or" : " and", name, to);
  };
  offer(given.micro, context.key_or_flag(kMicro, "--micro-batch"), micro);
  offer(given.steps, context.key_or_flag(kSteps, "--accumulation"), steps);
  return text;
}

// "set train_batch_size to 36, or train_micro_batch_size_per_gpu to 16"
std::string remedies(const Context& context, const Given& given, const BatchConfig& batch) {
  const int64_t ranks = context.data_ranks;
  const int64_t fixed = given.micro.value_or(1) * given.steps.value_or(1) * ranks;
  std::string single;
  const auto offer = [&](const std::optional<int64_t>& value, int64_t others, const char* name) {
    if (value && *given.batch % others == 0) {
      single += fmt::format(", or {} to {}", name, *given.batch / others);
    }
  };
  offer(given.micro, batch.accumulation_steps * ranks,
        context.key_or_flag(kMicro, "--micro-batch"));
  offer(given.steps, batch.micro_batch_size * ranks, context.key_or_flag(kSteps, "--accumulation"));
  return fmt::format("set {} to {}{}", context.key_or_flag(kBatch, "--global-batch"),
                     given.micro && given.steps ? fixed : nearest_multiple(*given.batch, fixed),
                     single.empty() ? pair_remedy(context, given) : single);
}

// What file and flags alone come to on these ranks.
int64_t batch_alone(Given given, int64_t ranks) {
  if (!given.batch && !given.micro) given.micro = kDefaultMicro;
  return fill_missing(given, ranks).train_batch_size;
}

// Whether a resumed run would have another batch on as many ranks as it had, too: file and flags
// ask for another batch per rank. Complains then.
bool refuse_another(Context& context, const Given& given) {
  const FlagValues& flags = context.flags;
  const bool only_steps = !given.micro && context.keys.get<int64_t>(kSteps).has_value();
  if ((!given.micro && !given.steps) || only_steps || flags.batch_may_change) return false;
  if (!flags.rank_batch_so_far || context.rank_batch == *flags.rank_batch_so_far) return false;
  const int64_t alone = context.rank_batch * context.data_ranks;
  if (alone == *flags.batch_so_far) return false;
  std::string asked;
  const auto add = [&](const std::optional<int64_t>& value, const char* name) {
    if (value) asked += fmt::format("{}{} {}", asked.empty() ? "" : " and ", name, *value);
  };
  add(given.micro, context.key_or_flag(kMicro, "--micro-batch"));
  add(given.steps, context.key_or_flag(kSteps, "--accumulation"));
  context.complain(
      "{} on {} make a global batch of {}, and the checkpoint's run has {}: --allow-batch-change "
      "goes on with {}, --global-batch {} keeps it",
      asked, counted_ranks(context), alone, *flags.batch_so_far, alone, *flags.batch_so_far);
  return true;
}

// Samples of a step that file and flags ask for on a rank, 0 where they name the global batch. A
// resumed run keeps what it began with, unless they ask for a batch again.
int64_t rank_batch_of(const Context& context, const Given& given) {
  const FlagValues& flags = context.flags;
  const bool asks = given.batch || given.micro || given.steps;
  if (flags.rank_batch_so_far && (flags.micro_so_far || !asks)) return *flags.rank_batch_so_far;
  return given.batch ? 0 : batch_alone(given, context.data_ranks) / context.data_ranks;
}

// That of the rounds before, in micro-batches that have shown to fit.
void keep_batch(Context& context, Given& given) {
  const FlagValues& flags = context.flags;
  const int64_t alone = batch_alone(given, context.data_ranks);
  if (alone != *flags.batch_so_far) {
    note(context.notes, kBatch,
         "the run's global batch of {} stays in this round: on {} it would be {}",
         *flags.batch_so_far, counted_ranks(context), alone);
  }
  given.batch = flags.batch_so_far;
  given.micro = std::min(given.micro.value_or(*flags.micro_so_far), *flags.micro_so_far);
  given.steps.reset();
  context.origins[kBatch] = context.origins[kMicro] = context.origins[kSteps] = "the round before";
}

// Micro-batches no larger than before, as few as they can be, and of these the smallest: where they
// do not make up the batch some rows of the last ones do not count.
void spread(Context& context, const Given& given, BatchConfig& batch) {
  const int64_t ranks = context.data_ranks, all = batch.train_batch_size;
  const auto rounded_up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  const int64_t most = given.micro.value_or(rounded_up(all, ranks * batch.accumulation_steps));
  batch.accumulation_steps = rounded_up(all, ranks * std::min(most, all));
  batch.micro_batch_size = rounded_up(all, ranks * batch.accumulation_steps);
  note(context.notes, kBatch, "the global batch of {} stays: micro-batches of {}, {} per step{}",
       all, batch.micro_batch_size, batch.accumulation_steps,
       all % (ranks * batch.micro_batch_size * batch.accumulation_steps) == 0
           ? ""
           : ", of which the last rows do not count");
}

}  // namespace

std::string counted_ranks(const Context& context) {
  const bool all = context.data_ranks == context.facts.world_size;
  return counted(context.data_ranks, all ? "rank" : "data rank");
}

BatchConfig fill_batch(Context& context) {
  const CheckedKeys& keys = context.keys;
  const FlagValues& flags = context.flags;
  const int64_t ranks = context.data_ranks;
  Given given{context.pick(kBatch, flags.global_batch, "--global-batch"),
              context.pick(kMicro, flags.micro_batch, "--micro-batch"),
              context.pick(kSteps, flags.accumulation, "--accumulation")};
  if (keys.is_bad(kBatch) || keys.is_bad(kMicro) || keys.is_bad(kSteps)) return {};
  if (ranks == 0) return {};
  context.rank_batch = rank_batch_of(context, given);
  if (flags.batch_so_far && flags.micro_so_far) {
    keep_batch(context, given);
  } else if (!given.batch && flags.batch_so_far && refuse_another(context, given)) {
    return {};
  } else if (!given.batch && flags.batch_so_far && !(flags.batch_may_change && given.micro)) {
    given.batch = flags.batch_so_far;
    context.origins[kBatch] = "the checkpoint";
  }
  if (!given.batch && !given.micro) {
    const bool only_steps = keys.get<int64_t>(kSteps) && !keys.has(kBatch) && !keys.has(kMicro);
    if (only_steps) {
      context.complain(
          "{} {} alone does not give the batch (train_batch_size = micro * accumulation {} * {} "
          "{}): add {} or {}, or give --micro-batch or --global-batch",
          kSteps, *given.steps, *given.steps, ranks_word(context), ranks, kBatch, kMicro);
      return {};
    }
    given.micro = kDefaultMicro;
    context.origins[kMicro] = "default";
    note(context.notes, kMicro, "no batch size given: {} {}, {} {}", kMicro, *given.micro, kSteps,
         given.steps.value_or(1));
  }
  BatchConfig batch = fill_missing(given, ranks);
  tell_origins(context, given);
  if (batch.train_batch_size != batch.micro_batch_size * batch.accumulation_steps * ranks) {
    if (flags.batch_so_far) {
      spread(context, given, batch);
      return batch;
    }
    context.complain("{} {} != micro {} * accumulation {} * {} {}: {}",
                     context.key_or_flag(kBatch, "--global-batch"), batch.train_batch_size,
                     batch.micro_batch_size, batch.accumulation_steps, ranks_word(context), ranks,
                     remedies(context, given, batch));
  }
  return batch;
}

}  // namespace zeroth::configs
