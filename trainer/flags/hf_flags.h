// Translation of Hugging Face Trainer's spellings on the command line: --learning_rate is --lr.
#pragma once

#include <string>
#include <vector>

#include "configs/diagnostic.h"
#include "trainer/flags/hf_flag_table.h"
#include "trainer/flags/spellings.h"

namespace zeroth::trainer {

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
