// Maps Hugging Face's names of parameters to ours and back. A function of a spec uses the spec's
// family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/hf/families/family.h"
#include "model/spec.h"

namespace zeroth::model {

struct PlannedTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool keep_in_fp32 = false;  // in models of 16 bits, too
};

// Returns the name of a parameter of the family in checkpoints and messages, that of files which
// hold it as one tensor: "layers.3.attention.q.weight" -> "model.layers.3.self_attn.q_proj.weight".
// An unknown name is a bug.
std::string stored_name(const Family& family, const std::string& canonical);
std::string stored_name(const ModelSpec& spec, const std::string& canonical);

// Returns the tensors as which transformers saves a parameter of this shape: one with its
// stored_name(), or those of Family::stacked. They have equal sizes, and hold the parameter's
// elements in row-major order.
std::vector<PlannedTensor> stored_tensors(const Family& family, const PlannedTensor& parameter);

// A StoredPiece says that a stored tensor is the stored_tensors()[index] of a parameter.
struct StoredPiece {
  std::string canonical;
  int64_t index = 0;
  bool operator==(const StoredPiece&) const = default;
};
// Returns the piece that a stored tensor is; nullopt for all other tensors. The family's prefix may
// be absent.
std::optional<StoredPiece> stored_piece(const Family& family, const std::string& stored);

// Returns the canonical name of a stored tensor that is a full parameter; the family's prefix
// ("model.", "transformer.") may be absent, as in files of the bare base model. Returns nullopt for
// other names.
std::optional<std::string> canonical_name(const Family& family, const std::string& stored);
std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored);

// Returns what the name of a tensor that transformers skips begins with, and many others' do
// ("model.layers.61.", "mtp.", "layers.*.self_attn.k_"); nullopt for all other tensors.
std::optional<std::string> skipped_prefix(const Family& family, const ModelSpec& spec,
                                          const std::string& stored);

// Returns whether the name is that of a buffer which older files contain and which is no parameter:
// GPT-2's causal masks, Llama's rotary frequencies.
bool is_ignored_buffer(const Family& family, const std::string& stored);

}  // namespace zeroth::model
