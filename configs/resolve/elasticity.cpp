// Resolution of the section elasticity, which chooses the batch.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/printable.h"
#include "configs/resolve/context.h"
#include "configs/resolve/elastic_batch.h"
#include "configs/schema/json_text.h"

namespace zeroth::configs {
namespace {

constexpr char kSection[] = "elasticity.";
constexpr char kMax[] = "elasticity.max_train_batch_size";
constexpr char kMicros[] = "elasticity.micro_batch_sizes";
constexpr char kVersion[] = "elasticity.version";
constexpr char kSplit[] = "elasticity.model_parallel_size";
constexpr char kIgnore[] = "elasticity.ignore_non_elastic_batch_info";

bool has_invalid_key(const CheckedKeys& keys) {
  return std::any_of(keys.bad.begin(), keys.bad.end(),
                     [](const std::string& path) { return path.starts_with(kSection); });
}

ElasticRule read_rule(const CheckedKeys& keys) {
  ElasticRule rule;
  const auto read = [&](const char* path, auto& into) {
    using Value = std::decay_t<decltype(into)>;
    into = keys.get<Value>(std::string(kSection) + path).value_or(into);
  };
  read("max_train_batch_size", rule.max_batch);
  read("micro_batch_sizes", rule.micro_batches);
  read("min_gpus", rule.min_ranks);
  read("max_gpus", rule.max_ranks);
  read("num_gpus_per_node", rule.ranks_per_node);
  read("model_parallel_size", rule.tensor_parallel_size);
  read("prefer_larger_batch", rule.prefer_larger);
  if (keys.get<double>(kVersion) == 0.1) rule.version = ElasticVersion::kAnyRanks;
  return rule;
}

void check_rule(Context& context, const ElasticRule& rule, int64_t sharing_ranks) {
  const CheckedKeys& keys = context.keys;
  for (const char* path : {kMax, kMicros})
    if (!keys.has(path))
      context.add_error("{}: missing: elasticity needs it to choose the batch", path);
  if (keys.has(kMicros) &&
      (rule.micro_batches.empty() || rule.micro_batches.size() > kMaxElasticMicroBatches))
    context.add_error("{}: expected 1 to {} sizes, found {}", kMicros, kMaxElasticMicroBatches,
                      rule.micro_batches.size());
  const double version = keys.get<double>(kVersion).value_or(0.2);
  if (version != 0.1 && version != 0.2)
    context.add_error("{}: expected 0.1 or 0.2, found {}", kVersion, version);
  if (rule.max_ranks < rule.min_ranks)
    context.add_error("elasticity.max_gpus: {} is below elasticity.min_gpus {}", rule.max_ranks,
                      rule.min_ranks);
  const int64_t split = rule.tensor_parallel_size;
  if (version == 0.1 && split > 1)
    context.add_error("{}: {} needs {} 0.2, found 0.1", kSplit, split, kVersion);
  if (version == 0.2 && split != sharing_ranks)
    context.add_error("{}: {}, but {} {}: make them equal", kSplit, split,
                      context.keys.get<int64_t>("pipeline.stages").value_or(1) > 1
                          ? "pipeline.stages x tensor_parallel.autotp_size"
                          : context.key_or_flag("tensor_parallel.autotp_size"),
                      sharing_ranks);
}

// Adds an error if the cluster scheduler, which chose the machines by its own copy of the section,
// has other values.
void check_scheduler(Context& context, const ElasticRule& rule) {
  constexpr char kName[] = "environment variable DEEPSPEED_ELASTICITY_CONFIG";
  if (!context.keys.scheduler_elasticity) return;
  nlohmann::ordered_json root;
  try {
    root = parse_json(*context.keys.scheduler_elasticity, kName).root;
  } catch (const Error& error) {
    context.add_error("{}", error.what());
    return;
  }
  const auto check = [&](const char* name, const nlohmann::ordered_json& own,
                         const nlohmann::ordered_json& default_value) {
    const auto found = root.is_object() ? root.find(name) : root.end();
    const nlohmann::ordered_json theirs =
        root.is_object() && found != root.end() ? *found : default_value;
    if (theirs == own) return;
    context.add_error("elasticity.{}: {} in the file, but {} has {}: make them equal", name,
                      own.dump(), kName, quoted(theirs));
  };
  check("max_train_batch_size", rule.max_batch, nullptr);
  check("micro_batch_sizes", rule.micro_batches, nullptr);
  check("version", context.keys.get<double>(kVersion).value_or(0.2), 0.2);
}

// Reports batch values that are given although elasticity chooses them.
void check_explicit_batch(Context& context) {
  const FlagValues& flags = context.flags;
  const std::pair<const char*, std::optional<int64_t>> all[] = {
      {"train_batch_size", flags.global_batch},
      {"train_micro_batch_size_per_gpu", flags.micro_batch},
      {"gradient_accumulation_steps", flags.accumulation}};
  const bool ignore = context.keys.get<bool>(kIgnore).value_or(false);
  const auto report = [&](std::string_view name, int64_t value) {
    if (ignore) {
      warn(context.notes, name, "{} {} has no effect: elasticity chooses it", name, value);
    } else {
      context.add_error(
          "{}: {}, but elasticity chooses it: leave one of them out, or set {} "
          "to true",
          name, value, kIgnore);
    }
  };
  for (const auto& [path, flag] : all) {
    if (const auto value = context.keys.get<int64_t>(path)) report(path, *value);
    if (flag) report(find_key(path)->flag, *flag);
  }
}

std::string format_counts(const std::vector<int64_t>& counts) {
  constexpr size_t kShown = 24;
  const std::vector<int64_t> shown(counts.begin(),
                                   counts.begin() + std::min(counts.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     counts.size() > kShown ? fmt::format(", ... {}", counts.back()) : "");
}

BatchConfig to_batch_config(Context& context, const ElasticBatch& chosen) {
  const int64_t ranks = context.data_ranks;
  if (chosen.batch == 0) {
    context.add_error("{}: no batch of at most {} can be split evenly over {} with these sizes",
                      kMicros, context.keys.get<int64_t>(kMax).value(), describe_ranks(context));
    return {};
  }
  if (chosen.micro_batch == 0) {
    context.add_error("elasticity: the batch of {} cannot be split evenly over {}: start {}",
                      chosen.batch, describe_ranks(context), format_counts(chosen.data_ranks));
    return {};
  }
  for (const char* path :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
    context.origins[path] = fmt::format("elasticity, for {}", describe_ranks(context));
  note(context.notes, "elasticity",
       "elasticity: a global batch of {}, micro-batches of {}, {} per step on {}; valid numbers of "
       "data ranks: {}",
       chosen.batch, chosen.micro_batch, chosen.batch / (chosen.micro_batch * ranks),
       describe_ranks(context), format_counts(chosen.data_ranks));
  return fill_missing({.batch = chosen.batch, .micro = chosen.micro_batch, .steps = {}}, ranks);
}

}  // namespace

bool is_elastic(const CheckedKeys& keys) {
  return keys.get<bool>("elasticity.enabled").value_or(false);
}

void ignore_disabled_elasticity(Context& context) {
  if (is_elastic(context.keys)) return;
  for (const FileKey& given : context.keys.given) {
    if (given.key == nullptr || given.key->path == "elasticity.enabled") continue;
    if (given.key->path.starts_with(kSection)) context.suppressed.push_back(given.path + ":");
  }
}

std::optional<int64_t> elastic_ranks(const CheckedKeys& keys, int64_t sharing_ranks) {
  if (!is_elastic(keys) || has_invalid_key(keys)) return std::nullopt;
  const ElasticRule rule = read_rule(keys);
  if (rule.version == ElasticVersion::kWholeNodes) return rule.ranks_per_node;
  if (rule.micro_batches.empty() || rule.micro_batches.size() > kMaxElasticMicroBatches)
    return std::nullopt;
  try {
    const ElasticBatch chosen = elastic_batch(rule, 1);
    if (chosen.batch > 0) return chosen.data_ranks.front() * sharing_ranks;
  } catch (const Error&) {  // resolve reports the error
  }
  return std::nullopt;
}

BatchConfig fill_elastic_batch(Context& context, int64_t sharing_ranks) {
  const size_t before = context.errors.size();
  const ElasticRule rule = read_rule(context.keys);
  check_explicit_batch(context);
  if (has_invalid_key(context.keys)) return {};
  check_rule(context, rule, sharing_ranks);
  check_scheduler(context, rule);
  if (context.errors.size() > before || context.data_ranks == 0) return {};
  try {
    return to_batch_config(context, elastic_batch(rule, context.data_ranks));
  } catch (const Error& error) {
    context.add_error("elasticity: {}", error.what());
    return {};
  }
}

}  // namespace zeroth::configs
