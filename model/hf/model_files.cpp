#include "model/hf/model_files.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace zeroth::model {
namespace {

// Files in which a run records facts about the model that it has made.
constexpr std::array<std::string_view, 4> kRunRecords = {"trainer_state.json", "all_results.json",
                                                         "train_results.json", "eval_results.json"};
constexpr std::array<std::string_view, 5> kAuxiliaryFiles = {
    "generation_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
    "added_tokens.json"};

bool is_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         (name.starts_with("pytorch_model") && name.find(".bin") != std::string::npos);
}

bool is_adapter(const std::string& name) {
  return name.starts_with("adapter_") && (name.ends_with(".json") || name.ends_with(".bin"));
}

}  // namespace

bool is_auxiliary_file(const std::string& name) {
  return std::find(kAuxiliaryFiles.begin(), kAuxiliaryFiles.end(), name) != kAuxiliaryFiles.end() ||
         name.starts_with("tokenizer") || name.starts_with("chat_template");
}

bool is_model_file(const std::string& name) {
  return name == "config.json" || is_weights(name) || is_adapter(name) || is_auxiliary_file(name) ||
         std::find(kRunRecords.begin(), kRunRecords.end(), name) != kRunRecords.end();
}

}  // namespace zeroth::model
