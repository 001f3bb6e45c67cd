// Hugging Face Trainer's flags, and what each becomes here.
#pragma once

#include <span>
#include <string_view>

namespace zeroth::trainer {

struct HfFlag {
  enum class Kind {
    kValue,   // is `target` with the same value
    kSwitch,  // is `target`, which has no value, where True follows or nothing
    kTruth,   // is `target` with true or false
    kBeta,    // is the first or the second value of --betas
    kIdle,    // changes nothing here; `text` says why
    kRefused  // would change the training and does not exist; `text` says what to do
  };
  std::string_view name;  // without "--", with underscores
  Kind kind;
  std::string_view target = "";
  std::string_view text = "";
  // Values, with commas between, that ask for nothing: as if the flag were not given.
  std::string_view neutral = "";
  bool several = false;  // takes all values up to the next flag
};

std::span<const HfFlag> hf_flags();

}  // namespace zeroth::trainer
