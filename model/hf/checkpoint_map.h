// Maps Hugging Face's names of parameters to ours and back.
#pragma once

#include <optional>
#include <string>

#include "model/spec.h"

namespace zeroth::model {

// Returns the name under which transformers saves a parameter of the family:
// "layers.3.attention.q.weight" -> "model.layers.3.self_attn.q_proj.weight". An unknown name is a
// bug.
std::string stored_name(const ModelSpec& spec, const std::string& canonical);

// Returns the canonical name of a stored one; the family's prefix ("model.", "transformer.") may be
// absent, as in files of the bare base model. Returns nullopt for names of no parameter.
std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored);

// Returns whether the name is that of a buffer which older files contain and which is no parameter:
// GPT-2's causal masks, Llama's rotary frequencies.
bool is_ignored_buffer(const ModelSpec& spec, const std::string& stored);

}  // namespace zeroth::model
