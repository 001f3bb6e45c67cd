// The table of Hugging Face Trainer's flags and their counterparts here.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zeroth::trainer {

struct HfFlag {
  enum class Kind {
    kValue,    // becomes `target` with the same value
    kSwitch,   // becomes `target`, without a value, if True or nothing follows
    kBool,     // becomes `target` with true or false
    kBeta,     // becomes the first or the second value of --betas
    kIgnored,  // has no effect here; `text` explains why
    // Requests something that cannot be chosen, but that a run may do by itself
    // (trainer/hf_requests.h). `target`: the values that a run may fulfill, empty: any; others are
    // rejected. `text` describes what the run does.
    kRequest,
    kRefused  // would change the training and is not supported; `text` says what to do
  };
  std::string_view name;  // without "--", with underscores
  Kind kind;
  std::string_view target = "";
  std::string_view text = "";
  // Comma-separated values that request nothing: the flag counts as not given.
  std::string_view no_op_values = "";
  bool takes_list = false;  // consumes all values up to the next flag
};

// A flag as typed: of kRequest, to be compared with the run once that is known, or of kRefused.
struct HfRequest {
  const HfFlag* flag = nullptr;  // entry of the table
  std::string typed;
  std::string value;  // empty: none was given

  // Returns an error message: what was typed, and the flag's `text`.
  std::string refusal() const;
};

std::span<const HfFlag> hf_flags();

}  // namespace zeroth::trainer
