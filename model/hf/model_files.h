// Which files of a folder belong to a model in Hugging Face's format, told by their names.
#pragma once

#include <string>

namespace zeroth::model {

// Tokenizer, chat template and generation settings: what a new model takes over from its source.
bool is_auxiliary_file(const std::string& name);

// All that a model consists of: config.json, weights of any kind, adapters, companions, and what
// Trainer and run_clm.py record of its training and evaluation.
bool is_model_file(const std::string& name);

}  // namespace zeroth::model
