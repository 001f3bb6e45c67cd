#include "configs/resolve.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "configs/resolve/context.h"
#include "configs/schema/json_text.h"

namespace zeroth::configs {
namespace {

constexpr Defaults kZerothDefaults;
constexpr Defaults kTrainerDefaults = {.epochs = 3,
                                       .whole_epochs = true,
                                       .eval_micro_batch = 8,
                                       .schedule = HfSchedule::Type::kLinear,
                                       .no_decay = true};

Config fill_or_throw(Context& context) {
  Config config = fill(context);
  const std::vector<std::string> errors = all_errors(context);
  const std::string& name = context.keys.name;
  if (errors.size() == 1) throw Error("{}: {}", name, errors.front());
  if (!errors.empty()) throw Error("{}: {} errors\n  {}", name, errors.size(), listed(errors));
  return config;
}

Document read_document(const std::string& file_or_base64) {
  if (file_or_base64.starts_with('{')) return parse_text(file_or_base64, "inline configuration");
  std::error_code ignored;
  if (std::filesystem::exists(file_or_base64, ignored)) {
    return parse_text(read_file(file_or_base64, kConfigLimits.bytes), file_or_base64);
  }
  const std::optional<std::string> decoded = decode_base64(file_or_base64);
  if (decoded && decoded->find('{') != std::string::npos) {
    return parse_text(*decoded, "base64 configuration");
  }
  throw Error("{}: no such configuration file, and not a base64-encoded one",
              shortened(file_or_base64));
}

}  // namespace

const Defaults& defaults_for(const FlagValues& flags) {
  return flags.for_trainer ? kTrainerDefaults : kZerothDefaults;
}

Document::Document()
    : Document(
          std::make_shared<CheckedKeys>(CheckedKeys{.name = "command line", .from_file = false})) {}

Document parse_text(const std::string& text, const std::string& name) {
  const ParsedJson parsed = parse_json(text, name);
  CheckedKeys keys = check_keys(parsed.root, name);
  const auto& [paths, count] = parsed.duplicate_keys;
  for (const std::string& path : paths) {
    keys.errors.push_back(path + ": duplicate key in the same object: keep one");
  }
  keys.errors.resize(keys.errors.size() + count - paths.size(),
                     "another duplicate key in the same object");
  return Document(std::make_shared<const CheckedKeys>(std::move(keys)));
}

Document load(const std::string& file_or_base64) {
  const Document document = read_document(file_or_base64);
  const char* const scheduler = std::getenv("DEEPSPEED_ELASTICITY_CONFIG");
  if (scheduler == nullptr || *scheduler == '\0') return document;
  CheckedKeys keys = document.keys();
  keys.scheduler_elasticity = scheduler;
  return Document(std::make_shared<const CheckedKeys>(std::move(keys)));
}

BatchConfig resolve_batch(const Document& document, const FlagValues& flags, int64_t world_size) {
  Context context{.keys = document.keys(),
                  .flags = flags,
                  .facts = {.world_size = world_size},
                  .facts_known = false};
  return fill_or_throw(context).batch;
}

Resolved resolve(const Document& document, const FlagValues& flags, const RunFacts& facts) {
  Context context{
      .keys = document.keys(), .flags = flags, .facts = facts, .notes = document.keys().notes};
  Config config = fill_or_throw(context);
  return {std::move(config), all_origins(context), std::move(context.notes), context.rank_batch,
          enabled_services(context.keys)};
}

}  // namespace zeroth::configs
