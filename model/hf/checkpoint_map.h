// Hugging Face's names of parameters and ours.
#pragma once

#include <optional>
#include <string>

#include "model/spec.h"

namespace zeroth::model {

// "layers.3.attention.q.weight" -> "model.layers.3.self_attn.q_proj.weight", as transformers saves
// the family. An unknown name is a bug.
std::string stored_name(const ModelSpec& spec, const std::string& canonical);

// The inverse; the family's prefix ("model.", "transformer.") may be absent, as in files of the
// bare base model. Nothing for names of no parameter.
std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored);

// Buffers that older files carry and that are no parameters: GPT-2's causal masks, Llama's rotary
// frequencies.
bool is_ignored_buffer(const ModelSpec& spec, const std::string& stored);

}  // namespace zeroth::model
