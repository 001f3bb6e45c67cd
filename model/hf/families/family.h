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

// A StackedName is a stored tensor that holds a part of one entry of a parameter: of an expert or a
// head, which are the indices of dimension 0. The first '#' of `stored` is the layer's index, the
// second one the entry's. An entry's rows are divided into `parts` equal parts. Both names are full
// names. The parameter has a NamePair, too, for files that hold it as one tensor.
struct StackedName {
  std::string_view canonical;   // "layers.#.mlp.experts.gate_up", a parameter [E, 2I, h]
  std::string_view stored;      // "layers.#.mlp.experts.#.up_proj.weight", [I, h]
  int64_t part = 0, parts = 1;  // part 1 of 2
};

// The dropouts that a family has, as ModelSpec names them.
struct FamilyDropouts {
  bool attention = true, residual = false, embedding = false;
};

// Llama's names, which most families have.
std::span<const NamePair> llama_names();
// The products of each expert, where files hold them one by one.
std::span<const StackedName> expert_names();
// Rotary frequencies, which older files contain.
std::span<const std::string_view> rotary_buffers();

struct Family {
  std::string_view model_type;
  // Reads what families do not share (read_model_spec() reads the rest); adds errors to the reader.
  void (*read)(ConfigReader& config, ModelSpec& spec);
  // If names depend on the spec: returns the family that is used in place of this one.
  const Family* (*variant)(const ModelSpec& spec) = nullptr;
  std::span<const NamePair> names = {};       // those that differ from llama_names(), which follow
  std::span<const StackedName> stacked = {};  // every part of each parameter that has some
  std::string_view prefix = "model.";  // of stored names; files of the bare base model lack it
  std::string_view head = "lm_head.";  // of stored names, before "weight" and "bias"
  // Tensors that transformers skips as it loads files, such as those for the prediction of several
  // tokens: of layers beyond num_hidden_layers, and with these prefixes.
  bool skips_later_layers = false;
  std::span<const std::string_view> skipped_prefixes = {};
  // Ends of names of buffers that older files contain, and which are no parameters.
  std::span<const std::string_view> buffers = rotary_buffers();
  std::span<const std::string_view> lora_targets = {};  // what peft adapts by default
  FamilyDropouts dropouts = {};
  // Whether the embedding has a padding row, and which one if pad_token_id is missing.
  bool pads = true;
  std::optional<int64_t> padding_token = {};
};

// A MultimodalFamily has a language model beside other parts, such as a vision tower. Its
// config.json has that model's in text_config.
struct MultimodalFamily {
  std::string_view model_type;
  std::span<const std::string_view> text_families;  // the first one if text_config names none
  bool tied = false;                                // tie_word_embeddings, if it is missing
};

// Returns the family of a model_type, or null.
const Family* find_family(std::string_view model_type);
const MultimodalFamily* find_multimodal_family(std::string_view model_type);
// Returns the family of a spec that was read from a config.json.
const Family& family_of(const ModelSpec& spec);
// Returns the family with the names that transformers has in memory, and with those of the model's
// files: they differ from family_of() for the language model of a multimodal one.
Family family_in_memory(const ModelSpec& spec);
Family family_in_files(const ModelSpec& spec);
// Returns the model_types of all families, and of the multimodal ones that have one of these, in
// alphabetical order.
std::vector<std::string_view> family_names();

}  // namespace zeroth::model
