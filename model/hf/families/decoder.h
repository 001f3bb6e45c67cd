// What families of decoders with rotary embeddings share of their config.json and their names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf/config_reader.h"
#include "model/hf/families/family.h"
#include "model/spec.h"

namespace zeroth::model {

// Limits far beyond any existing model; with these, no size of a tensor overflows.
inline constexpr int64_t kMaxLayers = 1 << 10;
inline constexpr int64_t kMaxVocabSize = 1 << 24;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxExpertWidth = 16 * kMaxWidth;  // of all experts of a layer

// The keys about windows of attention.
struct WindowKeys {
  bool allowed = false;     // otherwise sliding_window is refused
  int64_t size = 0;         // if sliding_window is missing; 0: no window
  bool has_switch = false;  // use_sliding_window turns it on
  // max_window_layers, with a switch: the window is in the layers from this one on, or before it.
  bool has_first = true, switch_ends = false;
  bool has_layer_types = false;  // layer_types selects the layers; otherwise it is refused
  bool own_layer_types = false;  // there is no window, and the family reads layer_types
  // Without layer_types each layer of this number has no window; 0: each has one. The key of the
  // number, if it can be given.
  int64_t full_every = 0;
  const char* full_every_key = nullptr;
};

// What a family does not share with the others: its defaults, and the keys that it has.
struct DecoderKeys {
  int64_t max_positions = 0;             // max_position_embeddings
  bool has_mlp = true;                   // intermediate_size is needed
  bool has_kv_heads = true;              // num_key_value_heads is read
  std::optional<int64_t> kv_heads = {};  // if it is missing; unset: as many as heads
  std::optional<int64_t> head_dim = {};  // unset: hidden_size / num_attention_heads
  // Set: heads consist of parts with sizes of their own, of which this one rotates; the family sets
  // ModelSpec::head_dim.
  std::optional<int64_t> rotated_dim = {};
  NormSpec norm = {};  // eps is that of a missing key
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation = "silu";
  const char* activation_key = "hidden_act";  // null: the family sets the activation
  bool tied = false;
  double attention_dropout = 0;
  RopeKeys rope = {};
  std::optional<RopeKeys> local_rope = {};  // of layers with a window
  WindowKeys window = {};
};

// Reads a decoder's keys but for biases. Adds errors to `config`.
void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderKeys& keys);

// What families with experts do not share of their keys.
struct ExpertKeys {
  const char* count = "num_experts";
  const char* top_k = "num_experts_per_tok";
  const char* size = "moe_intermediate_size";
  const char* activation = "hidden_act";
  // Of missing keys.
  int64_t default_count = 0;
  std::optional<int64_t> default_top_k = {};
  std::optional<int64_t> default_size = {};
  double aux_loss_coef = 0.001;  // router_aux_loss_coef
  bool has_aux_loss = true;      // otherwise output_router_logits is refused
};
// Reads the experts of all layers, with a default router (experts.cpp).
void read_experts(ConfigReader& config, ModelSpec& spec, const ExpertKeys& keys);
// Adds an error unless a layer's experts, or the heads of latent attention, have at most
// kMaxExpertWidth channels together.
void require_width(ConfigReader& config, const char* key, int64_t width);
// Leaves experts out of the layers of mlp_only_layers, and of those between every
// decoder_sparse_step.
void read_sparse_layers(ConfigReader& config, ModelSpec& spec);
// Leaves experts out of the first layers, as many as first_k_dense_replace says.
void read_dense_layers(ConfigReader& config, ModelSpec& spec, int64_t fallback);
// Reads n_group and topk_group, which are 1 if they are null.
void read_groups(ConfigReader& config, ModelSpec& spec, int64_t groups, int64_t kept);
// Returns the list of a key, which has one entry for each layer; null if it is missing. Adds an
// error, and returns null, for anything else.
const nlohmann::json* find_layer_entries(ConfigReader& config, const ModelSpec& spec,
                                         const char* key);
// Returns for each layer whether its entry of layer_types is `type`, not full_attention; nullopt if
// the key is missing. Adds errors for other entries, and for another number of them.
std::optional<std::vector<bool>> read_layer_types(ConfigReader& config, const ModelSpec& spec,
                                                  std::string_view type);
// Returns a list of layers; nullopt if it is missing.
std::optional<std::vector<int64_t>> read_layer_list(ConfigReader& config, const ModelSpec& spec,
                                                    const char* key);
// Reads no_rope_layers, in which 1 means that the layer has rotary embeddings; without it each
// layer of the number no_rope_layer_interval, 4 if that is missing, has none.
void read_rope_layers(ConfigReader& config, ModelSpec& spec, bool empty_is_missing = false);

// Reads attention_bias, of q, k, v and o, and mlp_bias, which are false by default.
void read_biases(ConfigReader& config, ModelSpec& spec);

// The keys of a decoder's sizes.
struct SizeKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  std::optional<int64_t> default_layers = {};
};
// Reads them for models whose heads divide the hidden size, and each of which has its own key and
// value.
void read_sizes(ConfigReader& config, ModelSpec& spec, const SizeKeys& keys = {});
// Reads the keys that GPT-2 and GPT-J have for the sizes of a decoder.
void read_gpt_sizes(ConfigReader& config, ModelSpec& spec);

// Returns ALiBi's slopes of so many heads: powers of 1/2 in a geometric series, first those of
// every second one where their number is no power of 2.
std::vector<double> alibi_slopes(int64_t num_heads);
// Makes the model's attention use these slopes, in place of rotary embeddings.
void use_alibi(ModelSpec& spec, std::vector<double> slopes);

// Return a key's value, with errors for what is not supported.
Activation read_activation(ConfigReader& config, const std::string& key,
                           const std::string& fallback);
double read_dropout(ConfigReader& config, const std::string& key, double fallback);
// Returns the cap of scores or logits, 0 for none, which null means.
double read_softcap(ConfigReader& config, const char* key, double fallback);
void require_multiple(ConfigReader& config, const char* key, int64_t value, const char* divisor_key,
                      int64_t divisor);
// Adds errors unless the heads can share those of keys and values, and are not too wide together.
void check_heads(ConfigReader& config, int64_t heads, int64_t kv_heads, int64_t head_dim);

// The names of norms after attention and MLP, in models that normalize nothing before them.
std::span<const NamePair> post_norm_names();

// What peft adapts in these families.
std::span<const std::string_view> llama_targets();

}  // namespace zeroth::model
