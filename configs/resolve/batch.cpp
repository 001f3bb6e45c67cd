#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text/units.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr char kBatch[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kSteps[] = "gradient_accumulation_steps";
constexpr int64_t kDefaultMicro = 8;  // same as Hugging Face's Trainer

// Returns the name of the ranks over which the batch is partitioned: "ranks" if none of them split
// a layer.
const char* ranks_word(const Context& context) {
  return context.data_ranks == context.facts.world_size ? "ranks" : "data ranks";
}

int64_t at_least_one(int64_t value) {
  return std::max<int64_t>(1, value);
}

int64_t nearest_multiple(int64_t value, int64_t of) {
  return at_least_one((value + of / 2) / of) * of;
}

void record_origins(Context& context, const RequestedBatch& requested) {
  const char* const ranks = ranks_word(context);
  if (!requested.batch)
    context.origins[kBatch] = fmt::format("micro-batch * accumulation * {}", ranks);
  if (!requested.micro)
    context.origins[kMicro] = fmt::format("global batch / accumulation / {}", ranks);
  if (!requested.steps) {
    context.origins[kSteps] = requested.batch && requested.micro
                                  ? fmt::format("global batch / micro-batch / {}", ranks)
                                  : "default";
  }
}

// Returns the micro-batch and accumulation nearest to the given ones whose product is `samples`.
std::pair<int64_t, int64_t> nearest_pair(const RequestedBatch& requested, int64_t samples) {
  std::pair<int64_t, int64_t> best{samples, 1};
  const auto distance = [&](const std::pair<int64_t, int64_t>& pair) {
    return std::abs(pair.first - requested.micro.value_or(pair.first)) +
           std::abs(pair.second - requested.steps.value_or(pair.second));
  };
  for (int64_t divisor = 1; divisor <= samples / divisor; ++divisor) {
    if (samples % divisor != 0) continue;
    const std::pair low(divisor, samples / divisor), high(samples / divisor, divisor);
    best = std::min({best, low, high},
                    [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  }
  return best;
}

// Returns a remedy if no single value can be changed to fit the global batch.
std::string pair_remedy(const Context& context, const RequestedBatch& requested) {
  const int64_t ranks = context.data_ranks;
  if (*requested.batch % ranks != 0) {
    return fmt::format("; no micro * accumulation gives {} on {} {}", *requested.batch, ranks,
                       ranks_word(context));
  }
  const auto [micro, steps] = nearest_pair(requested, *requested.batch / ranks);
  std::string text;
  const auto offer = [&](const std::optional<int64_t>& value, const char* key, int64_t to) {
    if (!value) return;
    text +=
        fmt::format("{} {} to {}", text.empty() ? ", or" : " and", context.key_or_flag(key), to);
  };
  offer(requested.micro, kMicro, micro);
  offer(requested.steps, kSteps, steps);
  return text;
}

// Returns, for example, "set train_batch_size to 36, or train_micro_batch_size_per_gpu to 16".
std::string remedies(const Context& context, const RequestedBatch& requested,
                     const BatchConfig& batch) {
  const int64_t ranks = context.data_ranks;
  const int64_t fixed = requested.micro.value_or(1) * requested.steps.value_or(1) * ranks;
  std::string single;
  const auto offer = [&](const std::optional<int64_t>& value, int64_t others, const char* key) {
    if (value && *requested.batch % others == 0) {
      single += fmt::format(", or {} to {}", context.key_or_flag(key), *requested.batch / others);
    }
  };
  offer(requested.micro, batch.accumulation_steps * ranks, kMicro);
  offer(requested.steps, batch.micro_batch_size * ranks, kSteps);
  return fmt::format(
      "set {} to {}{}", context.key_or_flag(kBatch),
      requested.micro && requested.steps ? fixed : nearest_multiple(*requested.batch, fixed),
      single.empty() ? pair_remedy(context, requested) : single);
}

// Returns the global batch that file and flags imply on these ranks.
int64_t derived_batch(RequestedBatch requested, int64_t ranks) {
  if (!requested.batch && !requested.micro) requested.micro = kDefaultMicro;
  return fill_missing(requested, ranks).train_batch_size;
}

// Returns whether file and flags request another batch per rank than a resumed run had, so that its
// global batch changes even on the same number of ranks. Adds an error then.
bool reject_batch_change(Context& context, const RequestedBatch& requested) {
  const FlagValues& flags = context.flags;
  const bool only_steps = !requested.micro && context.keys.get<int64_t>(kSteps).has_value();
  if ((!requested.micro && !requested.steps) || only_steps || flags.allow_batch_change)
    return false;
  if (!flags.previous_rank_batch || context.rank_batch == *flags.previous_rank_batch) return false;
  const int64_t derived = context.rank_batch * context.data_ranks;
  if (derived == *flags.previous_batch) return false;
  std::string asked;
  const auto add = [&](const std::optional<int64_t>& value, const char* key) {
    if (!value) return;
    asked += fmt::format("{}{} {}", asked.empty() ? "" : " and ", context.key_or_flag(key), *value);
  };
  add(requested.micro, kMicro);
  add(requested.steps, kSteps);
  context.add_error(
      "{} on {} give a global batch of {}, but the checkpoint's run has {}: --allow-batch-change "
      "resumes with {}, --global-batch {} keeps it",
      asked, describe_ranks(context), derived, *flags.previous_batch, derived,
      *flags.previous_batch);
  return true;
}

// Returns the samples per step that file and flags request for each rank; 0 if they name the global
// batch. A resumed run keeps its initial value unless they request a batch again.
int64_t derive_rank_batch(const Context& context, const RequestedBatch& requested) {
  const FlagValues& flags = context.flags;
  const bool asks = requested.batch || requested.micro || requested.steps;
  if (flags.previous_rank_batch && (flags.previous_micro_batch || !asks))
    return *flags.previous_rank_batch;
  return requested.batch ? 0 : derived_batch(requested, context.data_ranks) / context.data_ranks;
}

// Keeps the batch of the previous restart attempts, in micro-batches that are known to fit.
void keep_batch(Context& context, RequestedBatch& requested) {
  const FlagValues& flags = context.flags;
  const int64_t derived = derived_batch(requested, context.data_ranks);
  if (derived != *flags.previous_batch) {
    note(context.notes, kBatch,
         "this round keeps the run's global batch of {}: on {} it would be {}",
         *flags.previous_batch, describe_ranks(context), derived);
  }
  requested.batch = flags.previous_batch;
  requested.micro =
      std::min(requested.micro.value_or(*flags.previous_micro_batch), *flags.previous_micro_batch);
  requested.steps.reset();
  context.origins[kBatch] = context.origins[kMicro] = context.origins[kSteps] =
      "the previous round";
}

// Splits the batch into the fewest micro-batches that are no larger than before, of the smallest
// size. If they exceed the batch, some rows of the last ones do not count.
void split_batch(Context& context, const RequestedBatch& requested, BatchConfig& batch) {
  const int64_t ranks = context.data_ranks, all = batch.train_batch_size;
  const auto rounded_up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  const int64_t max_micro =
      requested.micro.value_or(rounded_up(all, ranks * batch.accumulation_steps));
  batch.accumulation_steps = rounded_up(all, ranks * std::min(max_micro, all));
  batch.micro_batch_size = rounded_up(all, ranks * batch.accumulation_steps);
  note(context.notes, kBatch, "the global batch of {} stays: micro-batches of {}, {} per step{}",
       all, batch.micro_batch_size, batch.accumulation_steps,
       all % (ranks * batch.micro_batch_size * batch.accumulation_steps) == 0
           ? ""
           : ", of which the last rows do not count");
}

}  // namespace

std::string describe_ranks(const Context& context) {
  const bool all = context.data_ranks == context.facts.world_size;
  return pluralize(context.data_ranks, all ? "rank" : "data rank");
}

BatchConfig fill_missing(const RequestedBatch& requested, int64_t ranks) {
  BatchConfig batch;
  batch.micro_batch_size = requested.micro.value_or(1);
  batch.accumulation_steps = requested.steps.value_or(1);
  if (!requested.batch) {
    batch.train_batch_size = batch.micro_batch_size * batch.accumulation_steps * ranks;
    return batch;
  }
  batch.train_batch_size = *requested.batch;
  if (!requested.micro) {
    batch.micro_batch_size = at_least_one(*requested.batch / ranks / batch.accumulation_steps);
  } else if (!requested.steps) {
    batch.accumulation_steps = at_least_one(*requested.batch / *requested.micro / ranks);
  }
  return batch;
}

BatchConfig fill_batch(Context& context) {
  const CheckedKeys& keys = context.keys;
  const FlagValues& flags = context.flags;
  const int64_t ranks = context.data_ranks;
  RequestedBatch requested{context.resolve_value(kBatch, flags.global_batch),
                           context.resolve_value(kMicro, flags.micro_batch),
                           context.resolve_value(kSteps, flags.accumulation)};
  if (keys.is_bad(kBatch) || keys.is_bad(kMicro) || keys.is_bad(kSteps)) return {};
  if (ranks == 0) return {};
  context.rank_batch = derive_rank_batch(context, requested);
  if (flags.previous_batch && flags.previous_micro_batch) {
    keep_batch(context, requested);
  } else if (!requested.batch && flags.previous_batch && reject_batch_change(context, requested)) {
    return {};
  } else if (!requested.batch && flags.previous_batch &&
             !(flags.allow_batch_change && requested.micro)) {
    requested.batch = flags.previous_batch;
    context.origins[kBatch] = "the checkpoint";
  }
  if (!requested.batch && !requested.micro) {
    const bool only_steps = keys.get<int64_t>(kSteps) && !keys.has(kBatch) && !keys.has(kMicro);
    if (only_steps) {
      context.add_error(
          "{} {} alone does not give the batch (train_batch_size = micro * accumulation {} * {} "
          "{}): add {} or {}, or give --micro-batch or --global-batch",
          kSteps, *requested.steps, *requested.steps, ranks_word(context), ranks, kBatch, kMicro);
      return {};
    }
    requested.micro = kDefaultMicro;
    context.origins[kMicro] = "default";
    note(context.notes, kMicro, "no batch size given: {} {}, {} {}", kMicro, *requested.micro,
         kSteps, requested.steps.value_or(1));
  }
  BatchConfig batch = fill_missing(requested, ranks);
  record_origins(context, requested);
  if (batch.train_batch_size != batch.micro_batch_size * batch.accumulation_steps * ranks) {
    if (flags.previous_batch) {
      split_batch(context, requested, batch);
      return batch;
    }
    context.add_error("{} {} != micro {} * accumulation {} * {} {}: {}",
                      context.key_or_flag(kBatch), batch.train_batch_size, batch.micro_batch_size,
                      batch.accumulation_steps, ranks_word(context), ranks,
                      remedies(context, requested, batch));
  }
  return batch;
}

}  // namespace zeroth::configs
