// Hugging Face Trainer's flags, and what each becomes here.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zeroth::trainer {

struct HfFlag {
  enum class Kind {
    kValue,    // is `target` with the same value
    kSwitch,   // is `target`, which has no value, where True follows or nothing
    kBool,     // is `target` with true or false
    kBeta,     // is the first or the second value of --betas
    kIgnored,  // changes nothing here; `text` says why
    // Asks for something that cannot be chosen, but that a run may do by itself
    // (trainer/hf_requests.h). `target`: which values it may do, empty: any; others are refused.
    // `text` says what it does.
    kRequest,
    kRefused  // would change the training and does not exist; `text` says what to do
  };
  std::string_view name;  // without "--", with underscores
  Kind kind;
  std::string_view target = "";
  std::string_view text = "";
  // Values, with commas between, that ask for nothing: as if the flag were not given.
  std::string_view no_op_values = "";
  bool takes_list = false;  // takes all values up to the next flag
};

// One of kRequest as it was typed, which is compared with the run once that is known, or of
// kRefused.
struct HfRequest {
  const HfFlag* flag = nullptr;  // of the table
  std::string typed;
  std::string value;  // empty: none was given

  // What stands in a message before the flag's own text.
  std::string refusal() const;
};

std::span<const HfFlag> hf_flags();

}  // namespace zeroth::trainer
