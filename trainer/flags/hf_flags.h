// Hugging Face Trainer's spellings on the command line: --learning_rate is --lr.
#pragma once

#include <string>
#include <vector>

#include "configs/diagnostic.h"
#include "trainer/flags/hf_flag_table.h"
#include "trainer/flags/spellings.h"

namespace zeroth::trainer {

struct HfTranslation {
  std::vector<std::string> arguments;  // with our flags in place of theirs
  configs::Diagnostics notes;          // about flags that change nothing here
  std::vector<HfRequest> hf_requests;
  Spellings spellings;
  // Model, output or data have Trainer's names: so have its defaults what the line leaves out.
  bool for_trainer = false;
};

// Underscores and hyphens are one. Appends to `errors` for a flag that would change the
// training and does not exist here, and for two spellings of one flag with different values.
HfTranslation translate_hf_flags(const std::vector<std::string>& arguments,
                                 std::vector<std::string>& errors);

// Their names as --help shows them.
std::string hf_flags_help();

}  // namespace zeroth::trainer
