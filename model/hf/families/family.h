// Families of models: what config.json's model_type says about how its other keys are read, and
// how files name parameters. Each family is a file of this folder and an entry of the table in
// families.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/hf/config_reader.h"
#include "model/spec.h"

namespace zeroth::model {

// In a NamePair '#' is a placeholder for the layer's index. The suffix (".weight", ".bias") is
// equal on both sides, unless the pair contains full names.
struct NamePair {
  std::string_view canonical;
  std::string_view stored;
};

// The dropouts that a family has, as ModelSpec names them.
struct FamilyDropouts {
  bool attention = true, residual = false, embedding = false;
};

// Llama's names, which most families have.
std::span<const NamePair> llama_names();
// Rotary frequencies, which older files contain.
std::span<const std::string_view> rotary_buffers();

struct Family {
  std::string_view model_type;
  // Reads what families do not share (read_model_spec() reads the rest); adds errors to the reader.
  void (*read)(ConfigReader& config, ModelSpec& spec);
  std::span<const NamePair> names = {};  // those that differ from llama_names(), which follow
  // If the names depend on the spec: returns what is used in place of `names`.
  std::span<const NamePair> (*names_of)(const ModelSpec& spec) = nullptr;
  std::string_view head = "lm_head.";  // stored name of the head
  std::string_view prefix = "model.";  // of stored names; files of the bare base model lack it
  // Ends of names of buffers that older files contain, and which are no parameters.
  std::span<const std::string_view> buffers = rotary_buffers();
  std::span<const std::string_view> lora_targets = {};  // what peft adapts by default
  FamilyDropouts dropouts = {};
  // Whether the embedding has a padding row, and which one if pad_token_id is missing.
  bool pads = true;
  std::optional<int64_t> padding_token = {};
};

// Returns the family of a model_type, or null.
const Family* find_family(std::string_view model_type);
// Returns the family of a spec that was read from a config.json.
const Family& family_of(const ModelSpec& spec);
// Returns the model_types of all families.
std::vector<std::string_view> family_names();

}  // namespace zeroth::model
