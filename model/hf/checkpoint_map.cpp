#include "model/hf/checkpoint_map.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>

#include "base/error.h"

namespace zeroth::model {
namespace {

// In a NamePair '#' is a placeholder for the layer's index. The suffix (".weight", ".bias") is
// equal on both sides, unless the pair contains full names.
struct NamePair {
  std::string_view canonical;
  std::string_view stored;
};

constexpr std::string_view kLmHead = "lm_head.weight";

constexpr NamePair kLlama[] = {
    {"embedding.weight", "embed_tokens.weight"},
    {"layers.#.attention_norm.", "layers.#.input_layernorm."},
    {"layers.#.attention.q.", "layers.#.self_attn.q_proj."},
    {"layers.#.attention.k.", "layers.#.self_attn.k_proj."},
    {"layers.#.attention.v.", "layers.#.self_attn.v_proj."},
    {"layers.#.attention.o.", "layers.#.self_attn.o_proj."},
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_norm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.k_norm."},
    {"layers.#.mlp_norm.", "layers.#.post_attention_layernorm."},
    {"layers.#.mlp.gate.", "layers.#.mlp.gate_proj."},
    {"layers.#.mlp.up.", "layers.#.mlp.up_proj."},
    {"layers.#.mlp.down.", "layers.#.mlp.down_proj."},
    {"head.norm.", "norm."},
};

constexpr NamePair kGpt2[] = {
    {"embedding.weight", "wte.weight"},
    {"embedding.positions", "wpe.weight"},
    {"layers.#.attention_norm.", "h.#.ln_1."},
    {"layers.#.attention.qkv.", "h.#.attn.c_attn."},
    {"layers.#.attention.o.", "h.#.attn.c_proj."},
    {"layers.#.mlp_norm.", "h.#.ln_2."},
    {"layers.#.mlp.up.", "h.#.mlp.c_fc."},
    {"layers.#.mlp.down.", "h.#.mlp.c_proj."},
    {"head.norm.", "ln_f."},
};

std::span<const NamePair> pairs(const ModelSpec& spec) {
  if (spec.family == "gpt2") return kGpt2;
  return kLlama;
}

std::string_view prefix(const ModelSpec& spec) {
  return spec.family == "gpt2" ? "transformer." : "model.";
}

// Rewrites `name` if it begins with pattern `from`: the index is kept, and so is what follows the
// pattern.
std::optional<std::string> rewrite(std::string_view name, std::string_view from,
                                   std::string_view to) {
  const size_t mark = from.find('#');
  if (mark == std::string_view::npos) {
    const bool whole = from.back() != '.';
    if (whole ? name != from : !name.starts_with(from)) return std::nullopt;
    return std::string(to) + std::string(name.substr(from.size()));
  }
  if (!name.starts_with(from.substr(0, mark))) return std::nullopt;
  const std::string_view rest = name.substr(mark);
  const size_t digits = static_cast<size_t>(
      std::find_if_not(rest.begin(), rest.end(), [](unsigned char c) { return std::isdigit(c); }) -
      rest.begin());
  const std::string_view tail = from.substr(mark + 1);
  if (digits == 0 || !rest.substr(digits).starts_with(tail)) return std::nullopt;
  const size_t to_mark = to.find('#');
  return std::string(to.substr(0, to_mark)) + std::string(rest.substr(0, digits)) +
         std::string(to.substr(to_mark + 1)) + std::string(rest.substr(digits + tail.size()));
}

}  // namespace

std::string stored_name(const ModelSpec& spec, const std::string& canonical) {
  if (canonical == "head.weight") return std::string(kLmHead);
  for (const NamePair& pair : pairs(spec)) {
    const auto name = rewrite(canonical, pair.canonical, pair.stored);
    if (name) return std::string(prefix(spec)) + *name;
  }
  ZEROTH_CHECK(false, "no {} checkpoint holds a parameter {}", spec.family, canonical);
  return {};
}

std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored) {
  if (stored == kLmHead) return "head.weight";
  std::string_view name = stored;
  if (name.starts_with(prefix(spec))) name.remove_prefix(prefix(spec).size());
  for (const NamePair& pair : pairs(spec)) {
    const auto canonical = rewrite(name, pair.stored, pair.canonical);
    if (canonical) return canonical;
  }
  return std::nullopt;
}

bool is_ignored_buffer(const ModelSpec& spec, const std::string& stored) {
  if (spec.family == "gpt2") {
    return stored.ends_with(".attn.bias") || stored.ends_with(".attn.masked_bias");
  }
  return stored.ends_with("rotary_emb.inv_freq");
}

}  // namespace zeroth::model
