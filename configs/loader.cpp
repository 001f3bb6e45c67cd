#include "configs/loader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "configs/context.h"
#include "configs/json_text.h"

namespace zeroth::configs {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) throw Error("{}: cannot be read", path);
  return text;
}

[[noreturn]] void throw_complaints(const std::string& name,
                                   const std::vector<std::string>& complaints) {
  if (complaints.size() == 1) throw Error("{}: {}", name, complaints.front());
  throw Error("{}: {} errors\n  {}", name, complaints.size(), fmt::join(complaints, "\n  "));
}

// The complaints about the file and about how its values fit, in this order.
std::vector<std::string> all_complaints(const Context& context) {
  std::vector<std::string> all;
  for (const std::string& complaint : context.keys.complaints) {
    const bool moot = std::any_of(context.moot.begin(), context.moot.end(),
                                  [&](const auto& path) { return complaint.starts_with(path); });
    if (!moot) all.push_back(complaint);
  }
  all.insert(all.end(), context.complaints.begin(), context.complaints.end());
  return all;
}

// What has no key in the file.
void fill_from_flags(const FlagValues& flags, Config& config) {
  config.seed = flags.seed.value_or(config.seed);
  config.loss_mean = flags.loss_mean.value_or(config.loss_mean);
  config.on_non_finite = flags.on_non_finite.value_or(config.on_non_finite);
  config.dropout = flags.dropout;
  config.optimizer.no_decay = flags.no_decay.value_or(false);
}

Config fill(Context& context) {
  if (context.facts.world_size < 1) {
    throw Error("ranks: expected >= 1, found {}", context.facts.world_size);
  }
  Config config;
  check_flags(context);
  if (context.complaints.empty()) config.batch = fill_batch(context);
  fill_precision(context, config);
  config.gradient_clipping =
      context.pick("gradient_clipping", context.flags.max_grad_norm, "--max-grad-norm")
          .value_or(config.gradient_clipping);
  fill_optimizer(context, config);
  fill_scheduler(context, config);
  fill_gradients(context, config);
  fill_zero(context, config);
  fill_recompute(context, config);
  fill_report(context, config);
  fill_from_flags(context.flags, config);
  validate(context, config);
  if (const auto complaints = all_complaints(context); !complaints.empty()) {
    throw_complaints(context.keys.name, complaints);
  }
  return config;
}

}  // namespace

Document::Document()
    : Document(std::make_shared<CheckedKeys>(CheckedKeys{.name = "command line"})) {}

const std::vector<std::string>& Document::complaints() const {
  return keys_->complaints;
}

Document parse_text(const std::string& text, const std::string& name) {
  const ParsedJson parsed = parse_json(text, name);
  CheckedKeys keys = check_keys(parsed.root, name);
  for (const std::string& path : parsed.duplicates) {
    keys.complaints.push_back(path + ": stands twice in the same object: keep one");
  }
  return Document(std::make_shared<const CheckedKeys>(std::move(keys)));
}

Document load(const std::string& file_or_base64) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file_or_base64, ignored)) {
    throw Error("{}: is a folder, expected a configuration file", file_or_base64);
  }
  if (std::filesystem::exists(file_or_base64, ignored)) {
    return parse_text(read_file(file_or_base64), file_or_base64);
  }
  const std::optional<std::string> decoded = decode_base64(file_or_base64);
  if (decoded && decoded->find('{') != std::string::npos) {
    return parse_text(*decoded, "base64 configuration");
  }
  throw Error("{}: no such configuration file, and not base64 of one", file_or_base64);
}

BatchConfig resolve_batch(const Document& document, const FlagValues& flags, int64_t world_size) {
  Context context{.keys = document.keys(),
                  .flags = flags,
                  .facts = {.world_size = world_size},
                  .facts_known = false};
  return fill(context).batch;
}

Resolved resolve(const Document& document, const FlagValues& flags, const RunFacts& facts) {
  Context context{
      .keys = document.keys(), .flags = flags, .facts = facts, .notes = document.keys().notes};
  Config config = fill(context);
  return {std::move(config), std::move(context.notes)};
}

}  // namespace zeroth::configs
