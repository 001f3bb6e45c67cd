// Classifies the files of a directory by name: which belong to a model in Hugging Face's format.
#pragma once

#include <string>

namespace zeroth::model {

// Returns whether the file is one that a new model copies from its source: tokenizer, chat template
// or generation settings.
bool is_auxiliary_file(const std::string& name);

// Returns whether the file belongs to a model: config.json, weights of any kind, adapters,
// auxiliary files, and what Trainer and run_clm.py record of its training and evaluation.
bool is_model_file(const std::string& name);

}  // namespace zeroth::model
