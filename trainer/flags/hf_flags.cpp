#include "trainer/flags/hf_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::trainer {
namespace {

using Kind = HfFlag::Kind;
using Json = nlohmann::ordered_json;

// The names of model, output and data, which mark a command line for Trainer.
constexpr std::string_view kTrainerMarkers = "model_name_or_path,output_dir,train_file";

// Returns the value as it is typed after a flag.
std::string argument_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> read_flags(const std::string& path) {
  DuplicateKeys duplicate_keys;
  const Json file = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                       {.name = path, .limits = kConfigLimits}, &duplicate_keys);
  if (duplicate_keys.count > 0)
    throw Error("{}: duplicate key {}: keep one", path, duplicate_keys.paths.front());
  if (!file.is_object())
    throw Error("{}: expected an object of flags, found {}", path, quoted(file));
  std::vector<std::string> flags;
  for (const auto& [key, value] : file.items()) {
    if (value.is_null()) continue;
    if (!value.is_array()) {
      flags.push_back(fmt::format("--{}={}", key, argument_text(value)));
      continue;
    }
    if (value.empty()) continue;
    flags.push_back("--" + key);
    for (const Json& entry : value) flags.push_back(argument_text(entry));
  }
  return flags;
}

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Parses a truth value as Hugging Face's parser does; 1 and 0 may be numbers, too.
std::optional<bool> parse_bool(const std::string& text) {
  const auto is_one_of = [word = lower(text)](const auto& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_one_of(std::array{"true", "t", "yes", "y", "1"})) return true;
  if (is_one_of(std::array{"false", "f", "no", "n", "0"})) return false;
  return std::nullopt;
}

bool is_listed(std::string_view list, const std::string& value) {
  const std::string all = fmt::format(",{},", list);
  return !list.empty() && all.find(fmt::format(",{},", lower(value))) != std::string::npos;
}

bool same_value(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) { return parse_number<double>(text); };
  return a == b || (number(a) && number(a) == number(b));
}

// An argument that begins with "--", split into its parts.
struct TypedFlag {
  std::string spelling;  // "--learning-rate"
  std::string name;      // "learning_rate"
  std::optional<std::string> value;
  size_t arguments = 1;  // number of command-line arguments in it
};

class FlagTranslator {
 public:
  explicit FlagTranslator(std::vector<std::string>& errors) : errors_(errors) {}

  HfTranslation run(const std::vector<std::string>& arguments) {
    for (size_t at = 0; at < arguments.size();) {
      TypedFlag typed = split_argument(arguments, at);
      const HfFlag* const flag = find(typed);
      if (flag == nullptr) {
        result_.arguments.push_back(arguments[at++]);
        continue;
      }
      const bool is_bool = flag->kind == Kind::kSwitch || flag->kind == Kind::kBool;
      if (is_bool && typed.arguments == 2 && !parse_bool(*typed.value)) {
        typed.value.reset();  // the next argument belongs to no flag
        typed.arguments = 1;
      }
      at += typed.arguments;
      while (flag->takes_list && typed.value && at < arguments.size() && !is_flag(arguments[at])) {
        *typed.value += "," + arguments[at++];
      }
      handle(*flag, typed);
    }
    finish_betas();
    return std::move(result_);
  }

 private:
  static bool is_flag(const std::string& argument) { return argument.starts_with("--"); }

  static TypedFlag split_argument(const std::vector<std::string>& arguments, size_t at) {
    const std::string& argument = arguments[at];
    TypedFlag typed;
    if (!is_flag(argument)) return typed;
    const size_t equals = argument.find('=');
    typed.spelling = argument.substr(0, equals);
    typed.name = typed.spelling.substr(2);
    std::replace(typed.name.begin(), typed.name.end(), '-', '_');
    if (equals != std::string::npos) {
      typed.value = argument.substr(equals + 1);
    } else if (at + 1 < arguments.size() && !is_flag(arguments[at + 1])) {
      typed.value = arguments[at + 1];
      typed.arguments = 2;
    }
    return typed;
  }

  // Finds a flag by its own name or by ours.
  static const HfFlag* find(const TypedFlag& typed) {
    const auto flags = hf_flags();
    const auto found = std::find_if(flags.begin(), flags.end(), [&](const HfFlag& flag) {
      return flag.name == typed.name || (!flag.target.empty() && flag.target == typed.spelling);
    });
    return found == flags.end() || typed.name.empty() ? nullptr : &*found;
  }

  void handle(const HfFlag& flag, const TypedFlag& typed) {
    const bool ours = typed.spelling == flag.target;
    result_.for_trainer =
        result_.for_trainer || (!ours && is_listed(kTrainerMarkers, std::string(flag.name)));
    const bool theirs = !ours || flag.name == typed.name;  // or both
    if (theirs && typed.value && is_listed(flag.no_op_values, *typed.value)) return;
    if (flag.target.starts_with("--")) result_.spellings.add(flag.target, typed.spelling);
    switch (flag.kind) {
      case Kind::kIgnored:
        note(result_.notes, typed.spelling, "{}: no effect here: {}", typed.spelling, flag.text);
        return;
      case Kind::kRefused:
        errors_.push_back(HfRequest{&flag, typed.spelling, typed.value.value_or("")}.refusal());
        return;
      case Kind::kRequest:
        return handle_request(flag, typed);
      case Kind::kBeta:
        betas_[flag.target == "1"] = typed;
        return;
      case Kind::kSwitch:
      case Kind::kBool:
        return handle_switch(flag, typed);
      case Kind::kValue:
        return handle_value(flag, typed);
    }
  }

  void handle_switch(const HfFlag& flag, const TypedFlag& typed) {
    const bool ours = typed.spelling == flag.target;
    const bool is_word = typed.value && typed.value->size() > 1 && parse_bool(*typed.value);
    const bool number = typed.value && typed.arguments == 1 && !is_word;
    if (ours && flag.kind == Kind::kSwitch && number) {  // --gradient-checkpointing=4
      if (is_new_or_same(flag, typed, *typed.value)) {
        result_.arguments.push_back(fmt::format("{}={}", flag.target, *typed.value));
      }
      return;
    }
    if (typed.value && !parse_bool(*typed.value)) {
      errors_.push_back(
          fmt::format("{} {}: must be True or False", typed.spelling, shortened(*typed.value)));
      return;
    }
    const bool yes = !typed.value || *parse_bool(*typed.value);
    if (!is_new_or_same(flag, typed, yes ? "True" : "False")) return;
    if (flag.kind == Kind::kBool) {
      result_.arguments.push_back(fmt::format("{}={}", flag.target, yes));
    } else if (yes) {
      result_.arguments.emplace_back(flag.target);
    }
  }

  void handle_request(const HfFlag& flag, const TypedFlag& typed) {
    HfRequest request{&flag, typed.spelling, typed.value.value_or("True")};
    if (!flag.target.empty() && !is_listed(flag.target, request.value)) {
      errors_.push_back(request.refusal());
    } else {
      result_.hf_requests.push_back(std::move(request));
    }
  }

  void handle_value(const HfFlag& flag, const TypedFlag& typed) {
    if (!typed.value) {  // our parser reports the missing value
      result_.arguments.emplace_back(flag.target);
    } else if (is_new_or_same(flag, typed, *typed.value)) {
      result_.arguments.emplace_back(flag.target);
      result_.arguments.push_back(*typed.value);
    }
  }

  // Returns whether to pass it on: it is the first of its flag, or repeats one of our spellings,
  // which our parser reports.
  bool is_new_or_same(const HfFlag& flag, const TypedFlag& typed, const std::string& value) {
    const auto [earlier, first] = seen_.try_emplace(flag.target, typed.spelling, value);
    if (first) return true;
    const auto& [spelling, other] = earlier->second;
    if (spelling == typed.spelling && spelling == flag.target) return true;
    if (!same_value(other, value)) {
      errors_.push_back(fmt::format("{} {} and {} {} are the same flag: give it once", spelling,
                                    shortened(other), typed.spelling, shortened(value)));
    }
    return false;
  }

  void finish_betas() {
    std::vector<std::string> typed;
    for (const auto& beta : betas_) {
      if (beta) typed.push_back(beta->spelling);
    }
    if (typed.empty()) return;
    const auto& arguments = result_.arguments;
    const bool twice = std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) {
      return argument == "--betas" || argument.starts_with("--betas=");
    });
    if (twice) {
      errors_.push_back(
          fmt::format("{} and --betas are the same flag: give one of them", typed.front()));
      return;
    }
    result_.spellings.add("--betas", fmt::format("{}", fmt::join(typed, ", ")));
    const auto beta = [&](size_t i, const char* otherwise) {
      return betas_[i] ? betas_[i]->value.value_or("") : otherwise;
    };
    result_.arguments.push_back(fmt::format("--betas={},{}", beta(0, "0.9"), beta(1, "0.999")));
  }

  std::vector<std::string>& errors_;
  HfTranslation result_;
  std::map<std::string_view, std::pair<std::string, std::string>> seen_;  // by our name
  std::array<std::optional<TypedFlag>, 2> betas_;
};

}  // namespace

std::vector<std::string> expand_argument_file(std::vector<std::string> arguments) {
  const auto is_rank = [](const std::string& argument) {
    return argument.starts_with("--local_rank=") || argument.starts_with("--local-rank=");
  };
  std::vector<std::string> others;
  std::remove_copy_if(arguments.begin(), arguments.end(), std::back_inserter(others), is_rank);
  if (others.size() != 1 || others[0].starts_with("-")) return arguments;
  if (others[0].ends_with(".yaml") || others[0].ends_with(".yml")) {
    throw Error("{}: YAML is not supported: write the flags to a .json file", others[0]);
  }
  return others[0].ends_with(".json") ? read_flags(others[0]) : arguments;
}

std::string Spellings::lookup(std::string_view ours) const {
  const auto found = typed_.find(ours);
  return found == typed_.end() ? std::string(ours) : found->second;
}

bool Spellings::is_typed_as(std::string_view ours, std::string_view name) const {
  std::string typed = lookup(ours);
  std::replace(typed.begin(), typed.end(), '-', '_');
  return typed == fmt::format("__{}", name);
}

std::string Spellings::as_typed(std::string text) const {
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos;) {
    size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    const bool whole = at == 0 || !in_name(text[at - 1]);
    const std::string typed = lookup(std::string_view(text).substr(at, end - at));
    if (whole) text.replace(at, end - at, typed);
    at = whole ? at + typed.size() : end;
  }
  return text;
}

HfTranslation translate_hf_flags(const std::vector<std::string>& arguments,
                                 std::vector<std::string>& errors) {
  return FlagTranslator(errors).run(arguments);
}

std::string hf_flags_help() {
  std::string text = "Hugging Face Trainer's spellings:\n";
  for (const HfFlag& flag : hf_flags()) {
    if (!flag.text.empty()) continue;
    const std::string name = fmt::format("--{}", flag.name);
    if (flag.target == name) continue;  // it is listed above
    text += fmt::format("  {:<31}{}\n", name, flag.kind == Kind::kBeta ? "--betas" : flag.target);
  }
  return text + "  Other flags are explained when they are used.\n";
}

}  // namespace zeroth::trainer
