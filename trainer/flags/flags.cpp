#include "trainer/flags/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/diagnostics.h"
#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "trainer/flags/flag_rules.h"
#include "trainer/flags/hf_flags.h"

namespace zeroth::trainer {
namespace {

constexpr const char* kIntroduction =
    "Fine-tunes a Hugging Face checkpoint with a DeepSpeed configuration:\n"
    "  zeroth --num_gpus 2 finetune --model DIR --data train.jsonl --deepspeed ds_config.json "
    "--output out/\n";

// --separator, and the flags whose empty value is Trainer's own default.
const std::vector<std::string_view> kMayBeEmpty = {
    "--separator", "--debug", "--fsdp", "--lr_scheduler_kwargs", "--lr-scheduler-kwargs"};

// Returns the long names of all options, "--" included.
std::vector<std::string> known_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const HfFlag& flag : hf_flags()) names.push_back(fmt::format("--{}", flag.name));
  return names;
}

// Replaces a flag that is typed with underscores for hyphens, or the reverse, as Python programs
// allow, by the known spelling.
void respell(std::vector<std::string>& arguments, const CLI::App& app, Spellings& spellings) {
  const auto is_known = [&](const std::string& name) {
    return app.get_option_no_throw("--" + name) != nullptr;
  };
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    if (is_known(name)) continue;
    for (const auto& [from, to] : {std::pair('_', '-'), std::pair('-', '_')}) {
      std::string other = name;
      std::replace(other.begin(), other.end(), from, to);
      if (!is_known(other)) continue;
      spellings.add("--" + other, "--" + name);
      argument.replace(2, name.size(), other);
    }
  }
}

// Reports one error per argument that no flag consumed. The value after an unknown flag, or after
// the first flag if another one consumed it as a value, belongs to that flag.
void check_unknown_flags(const CLI::App& app, bool flag_taken, std::vector<std::string>& errors) {
  const std::vector<std::string> known = known_names(app);
  bool value_may_follow = flag_taken;
  SuggestionBudget guesses;
  for (const std::string& argument : app.remaining()) {
    if (!argument.starts_with("-")) {
      if (!value_may_follow) {
        errors.push_back(fmt::format(
            "'{}': unexpected{}", shortened(argument),
            argument.ends_with(".json")
                ? "; a file of flags must be the only argument: write the other flags into it"
                : ""));
      }
      value_may_follow = false;
      continue;
    }
    const std::string name = argument.substr(0, argument.find('='));
    value_may_follow = name == argument;
    const auto near =
        guesses.take() ? nearest_name(name, {known.begin(), known.end()}) : std::string_view();
    errors.push_back(
        fmt::format("{}: no such flag; {}", shortened(name),
                    near.empty() ? "--help lists all" : fmt::format("did you mean {}?", near)));
  }
}

// Checks the uses of flags, since CLI11 consumes the next argument as a value whatever it looks
// like, and stops at the first repeated flag. Returns whether a flag was consumed as a value.
bool check_flag_uses(const CLI::App& app, std::vector<std::string>& errors) {
  bool flag_taken = false;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = flag_name(*option);
    const auto& values = option->results();
    const auto flag = std::find_if(values.begin(), values.end(),
                                   [](const auto& value) { return value.starts_with("--"); });
    if (flag != values.end()) {
      errors.push_back(fmt::format("{} needs a value before {}", name, shortened(*flag)));
      flag_taken = true;
    } else if (std::string count = value_count_error(*option); !count.empty()) {
      errors.push_back(std::move(count));
    }
  }
  return flag_taken;
}

Flags answer(std::string text) {
  Flags flags;
  flags.answer = std::move(text);
  return flags;
}

// Sets the optimizer that --optim selects.
void select_optimizer(Flags& flags) {
  for (const HfRequest& request : flags.hf_requests) {
    if (request.flag->name != "optim") continue;
    const HfOptimizer& optimizer = *find_hf_optimizer(request.value);
    flags.values.optimizer = optimizer.type;
    if (!optimizer.is_paged) continue;
    note(flags.notes, request.typed,
         "{} {}: {}, whose states are not paged: zero_optimization.offload_optimizer in "
         "ds_config.json keeps them in CPU memory or a file",
         request.typed, request.value, optimizer.type);
  }
}

// Leaves one empty line between groups.
std::string tidy(std::string text) {
  for (size_t at = 0; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace

Flags parse_flags(std::vector<std::string> arguments) {
  RawFlags raw;
  arguments = expand_argument_file(std::move(arguments));
  if (const auto empty = empty_value_errors(arguments, kMayBeEmpty); !empty.empty())
    throw Error("{}", listed(empty));
  HfTranslation translated = translate_hf_flags(arguments, raw.errors);
  const size_t num_translation_errors = raw.errors.size();  // they name both spellings
  arguments = std::move(translated.arguments);
  raw.flags.notes = std::move(translated.notes);
  raw.flags.hf_requests = std::move(translated.hf_requests);
  select_optimizer(raw.flags);
  raw.flags.values.for_trainer = translated.for_trainer;
  CLI::App app(kIntroduction, "finetune");
  app.footer(hf_flags_help());
  app.allow_extras();
  add_options(app, raw);
  respell(arguments, app, translated.spellings);
  raw.flags.spellings = translated.spellings;
  std::string unparsed;
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 reads them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return answer(tidy(app.help()));
  } catch (const CLI::CallForVersion& version) {
    return answer(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    unparsed = flag_error(app, error);
  }
  std::vector<std::string> errors = std::move(raw.errors);
  const size_t before = errors.size();
  const bool flag_taken = check_flag_uses(app, errors);
  if (!unparsed.empty() && errors.size() == before) errors.push_back(unparsed);
  check_unknown_flags(app, flag_taken, errors);
  Flags flags = unparsed.empty() ? resolve_flags(std::move(raw), errors) : Flags{};
  const Spellings& spellings = translated.spellings;
  for (size_t i = num_translation_errors; i < errors.size(); ++i) {
    errors[i] = spellings.as_typed(std::move(errors[i]));
  }
  if (!errors.empty()) throw Error("{}", listed(errors));
  for (configs::Diagnostic& note : flags.notes)
    note.text = spellings.as_typed(std::move(note.text));
  return flags;
}

}  // namespace zeroth::trainer
