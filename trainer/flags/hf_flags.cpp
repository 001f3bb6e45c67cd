#include "trainer/flags/hf_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/units.h"
#include "trainer/flags/hf_flag_table.h"

namespace zeroth::trainer {
namespace {

using Kind = HfFlag::Kind;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// What Hugging Face's parser takes for a truth value; 1 and 0 may be numbers, too.
std::optional<bool> truth(const std::string& text) {
  const std::string word = lower(text);
  for (const char* yes : {"true", "t", "yes", "y", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "f", "no", "n", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

bool is_word_of_truth(const std::string& text) {
  return text.size() > 1 && truth(text);
}

bool listed(std::string_view list, const std::string& value) {
  const std::string all = fmt::format(",{},", list);
  return !list.empty() && all.find(fmt::format(",{},", lower(value))) != std::string::npos;
}

// A line that names its model, output or data so is one for Trainer.
bool tells_whose(const HfFlag& flag) {
  return flag.name == "model_name_or_path" || flag.name == "output_dir" ||
         flag.name == "train_file";
}

bool same_value(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) { return parse_number<double>(text); };
  return a == b || (number(a) && number(a) == number(b));
}

// An argument that begins with "--", taken apart.
struct Typed {
  std::string spelling;  // "--learning-rate"
  std::string name;      // "learning_rate"
  std::optional<std::string> value;
  size_t arguments = 1;  // how many of the command line it is
};

class Translator {
 public:
  explicit Translator(std::vector<std::string>& complaints) : complaints_(complaints) {}

  HfTranslation run(const std::vector<std::string>& arguments) {
    for (size_t at = 0; at < arguments.size();) {
      Typed typed = take_apart(arguments, at);
      const HfFlag* const flag = find(typed);
      if (flag == nullptr) {
        result_.arguments.push_back(arguments[at++]);
        continue;
      }
      const bool truth_value = flag->kind == Kind::kSwitch || flag->kind == Kind::kTruth;
      if (truth_value && typed.arguments == 2 && !truth(*typed.value)) {
        typed.value.reset();  // what follows belongs to nobody
        typed.arguments = 1;
      }
      at += typed.arguments;
      while (flag->several && typed.value && at < arguments.size() && !is_flag(arguments[at])) {
        *typed.value += "," + arguments[at++];
      }
      take(*flag, typed);
    }
    finish_betas();
    return std::move(result_);
  }

 private:
  static bool is_flag(const std::string& argument) { return argument.starts_with("--"); }

  static Typed take_apart(const std::vector<std::string>& arguments, size_t at) {
    const std::string& argument = arguments[at];
    Typed typed;
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

  // The flag by its own name or by ours.
  static const HfFlag* find(const Typed& typed) {
    const auto flags = hf_flags();
    const auto found = std::find_if(flags.begin(), flags.end(), [&](const HfFlag& flag) {
      return flag.name == typed.name || (!flag.target.empty() && flag.target == typed.spelling);
    });
    return found == flags.end() || typed.name.empty() ? nullptr : &*found;
  }

  void take(const HfFlag& flag, const Typed& typed) {
    const bool ours = typed.spelling == flag.target;
    result_.for_trainer = result_.for_trainer || (!ours && tells_whose(flag));
    const bool theirs = !ours || flag.name == typed.name;  // or both
    if (theirs && typed.value && listed(flag.neutral, *typed.value)) return;
    if (flag.target.starts_with("--")) result_.spellings.add(flag.target, typed.spelling);
    switch (flag.kind) {
      case Kind::kIdle:
        note(result_.notes, typed.spelling, "{}: no effect here: {}", typed.spelling, flag.text);
        return;
      case Kind::kRefused:
        complaints_.push_back(Wish{&flag, typed.spelling, typed.value.value_or("")}.refusal());
        return;
      case Kind::kWished:
        return take_wish(flag, typed);
      case Kind::kBeta:
        betas_[flag.target == "1"] = typed;
        return;
      case Kind::kSwitch:
      case Kind::kTruth:
        return take_switch(flag, typed);
      case Kind::kValue:
        return take_value(flag, typed);
    }
  }

  void take_switch(const HfFlag& flag, const Typed& typed) {
    const bool ours = typed.spelling == flag.target;
    const bool number = typed.value && typed.arguments == 1 && !is_word_of_truth(*typed.value);
    if (ours && flag.kind == Kind::kSwitch && number) {  // --gradient-checkpointing=4
      if (agrees(flag, typed, *typed.value)) {
        result_.arguments.push_back(fmt::format("{}={}", flag.target, *typed.value));
      }
      return;
    }
    if (typed.value && !truth(*typed.value)) {
      complaints_.push_back(
          fmt::format("{} {}: must be True or False", typed.spelling, shortened(*typed.value)));
      return;
    }
    const bool yes = !typed.value || *truth(*typed.value);
    if (!agrees(flag, typed, yes ? "True" : "False")) return;
    if (flag.kind == Kind::kTruth) {
      result_.arguments.push_back(fmt::format("{}={}", flag.target, yes));
    } else if (yes) {
      result_.arguments.emplace_back(flag.target);
    }
  }

  void take_wish(const HfFlag& flag, const Typed& typed) {
    Wish wish{&flag, typed.spelling, typed.value.value_or("True")};
    if (!flag.target.empty() && !listed(flag.target, wish.value)) {
      complaints_.push_back(wish.refusal());
    } else {
      result_.wishes.push_back(std::move(wish));
    }
  }

  void take_value(const HfFlag& flag, const Typed& typed) {
    if (!typed.value) {  // our parser says that a value is missing
      result_.arguments.emplace_back(flag.target);
    } else if (agrees(flag, typed, *typed.value)) {
      result_.arguments.emplace_back(flag.target);
      result_.arguments.push_back(*typed.value);
    }
  }

  // Whether it is to be handed on: it is the first of its flag, or repeats a spelling of ours,
  // about which our parser complains.
  bool agrees(const HfFlag& flag, const Typed& typed, const std::string& value) {
    const auto [earlier, first] = given_.try_emplace(flag.target, typed.spelling, value);
    if (first) return true;
    const auto& [spelling, other] = earlier->second;
    if (spelling == typed.spelling && spelling == flag.target) return true;
    if (!same_value(other, value)) {
      complaints_.push_back(fmt::format("{} {} and {} {} are one flag: give it once", spelling,
                                        shortened(other), typed.spelling, shortened(value)));
    }
    return false;
  }

  void finish_betas() {
    if (!betas_[0] && !betas_[1]) return;
    const auto& arguments = result_.arguments;
    const bool twice = std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) {
      return argument == "--betas" || argument.starts_with("--betas=");
    });
    if (twice) {
      complaints_.push_back(fmt::format("{} and --betas are one flag: give one of them",
                                        (betas_[0] ? betas_[0] : betas_[1])->spelling));
      return;
    }
    result_.spellings.add("--betas", betas_[0] && betas_[1]
                                         ? betas_[0]->spelling + ", " + betas_[1]->spelling
                                         : (betas_[0] ? betas_[0] : betas_[1])->spelling);
    const auto beta = [&](size_t i, const char* otherwise) {
      return betas_[i] ? betas_[i]->value.value_or("") : otherwise;
    };
    result_.arguments.push_back(fmt::format("--betas={},{}", beta(0, "0.9"), beta(1, "0.999")));
  }

  std::vector<std::string>& complaints_;
  HfTranslation result_;
  std::map<std::string_view, std::pair<std::string, std::string>> given_;  // by our name
  std::array<std::optional<Typed>, 2> betas_;
};

}  // namespace

HfTranslation translate_hf_flags(const std::vector<std::string>& arguments,
                                 std::vector<std::string>& complaints) {
  return Translator(complaints).run(arguments);
}

std::string hf_flags_help() {
  std::string text = "Hugging Face Trainer's spellings:\n";
  for (const HfFlag& flag : hf_flags()) {
    if (flag.kind == Kind::kIdle || flag.kind == Kind::kWished || flag.kind == Kind::kRefused) {
      continue;
    }
    const bool own = flag.target.substr(0, 2) == "--" && flag.target.substr(2) == flag.name;
    if (own) continue;  // it stands above
    text += fmt::format("  {:<31}{}\n", fmt::format("--{}", flag.name),
                        flag.kind == Kind::kBeta ? "--betas" : flag.target);
  }
  return text + "  Others are explained when they are given.\n";
}

}  // namespace zeroth::trainer
