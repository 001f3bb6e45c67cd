// Hugging Face's spellings of a command line: a file of flags, and a table of Trainer's flags with
// their translations. --learning_rate is --lr.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/diagnostic.h"

namespace zeroth::trainer {

// Returns the flags in a .json file, "--key=value" each, if its name is the only argument (except
// --local_rank), as Hugging Face's HfArgumentParser does; otherwise returns the arguments
// unchanged. A null counts as a missing key, a list as several values, and an object is passed on
// as JSON. Throws an Error that names the file and the place.
std::vector<std::string> expand_argument_file(std::vector<std::string> arguments);

struct HfFlag {
  enum class Kind {
    kValue,    // becomes `target` with the same value
    kSwitch,   // becomes `target`, without a value, if True or nothing follows
    kBool,     // becomes `target` with true or false
    kBeta,     // becomes the first or the second value of --betas
    kIgnored,  // has no effect here; `text` explains why
    // Requests something that cannot be chosen, but that a run may do by itself
    // (trainer/flag_requests.cpp). `target`: the values that a run may fulfill, empty: any; others
    // are rejected. `text` describes what the run does.
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

bool equals_ignoring_case(std::string_view left, std::string_view right);

// A value of --optim that selects an optimizer, unless the file has a section of that name.
struct HfOptimizer {
  std::string_view name;
  std::string_view type;  // optimizer.type
  bool is_paged = false;  // states leave the GPU when it is full; not here
};
// Returns the optimizer of that name, in any case; null if there is none.
const HfOptimizer* find_hf_optimizer(std::string_view name);

// Spellings of flags on a command line, so that messages name what was typed.
class Spellings {
 public:
  // Records a spelling. The first spelling of a flag stays.
  void add(std::string_view ours, std::string_view typed) {
    typed_.try_emplace(std::string(ours), typed);
  }

  // Returns "--learning_rate" for "--lr" if that was typed, otherwise the flag itself.
  std::string lookup(std::string_view ours) const;
  // Returns whether the flag was typed with this name of Trainer's, in hyphens or underscores.
  bool is_typed_as(std::string_view ours, std::string_view name) const;
  // Returns a message with its flags spelled as they were typed.
  std::string as_typed(std::string text) const;

 private:
  std::map<std::string, std::string, std::less<>> typed_;  // by our name
};

struct HfTranslation {
  std::vector<std::string> arguments;  // with our flags in place of theirs
  configs::Diagnostics notes;          // about flags without effect here
  std::vector<HfRequest> hf_requests;
  Spellings spellings;
  // Set if model, output or data have Trainer's names: omitted flags then have Trainer's defaults.
  bool for_trainer = false;
};

// Translates Trainer's flags; underscores and hyphens are equivalent. Appends to `errors` for a
// flag that would change the training and is not supported, and for two spellings of one flag with
// different values.
HfTranslation translate_hf_flags(const std::vector<std::string>& arguments,
                                 std::vector<std::string>& errors);

// Returns the names of Trainer's flags as --help shows them.
std::string hf_flags_help();

}  // namespace zeroth::trainer
