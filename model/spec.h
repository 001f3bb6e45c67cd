// A ModelSpec holds what a Hugging Face config.json says about the computation: one description of
// a transformer layer for all families.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::model {

enum class NormKind { kRms, kLayer };
enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared };
enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

struct RopeSpec {
  double theta = 10000;
  bool interleaved = false;  // dimensions 2i and 2i + 1 are a pair, not i and i + head_dim / 2
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                   // not read by kLongRope
  double attention_factor = 1;         // cosines and sines are multiplied by it
  int64_t original_max_positions = 0;  // kLlama3, kYarn, kLongRope: before the context was extended
  // Read by kLlama3.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // Read by kYarn: turns over the original context, between which frequencies are blended.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the blend's ends are integer frequency indices
  // Read by kLongRope: divisors of the head_dim / 2 frequencies, in sequences up to the original
  // context and in longer ones.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
};

// A QuantizationSpec says that the products of the layers keep their weights in NF4
// (model/kernels/nf4.h); embedding and head do not.
struct QuantizationSpec {
  bool double_quant = false;  // the scales are quantized, too
  // True: the model's files hold NF4. False: it is made of their values as they are read.
  bool is_stored = false;
  // Precision to which files of NF4 say that weights are dequantized ("bfloat16"); empty: that in
  // which the run computes.
  std::string dtype = "";
  bool operator==(const QuantizationSpec&) const = default;
};

struct ModelSpec {
  std::string family;  // config.json's model_type (hf/families)

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-6;

  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;      // RMS norm over each head of q and k, before the rotary embedding
  bool scale_scores = true;  // by 1 / sqrt(head_dim)
  bool scale_scores_by_layer = false;               // by 1 / (1 + layer) too
  std::optional<double> attention_multiplier = {};  // scales scores instead

  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // down(act(gate(x)) * up(x)); else down(act(up(x)))
  bool mlp_bias = false;

  // Weights are stored [in, out], and q, k, v as one product (GPT-2's Conv1D).
  bool conv1d = false;
  // A trained table of max_positions rows is added to the embedding; otherwise rotary embeddings.
  bool learned_positions = false;
  RopeSpec rope;
  std::vector<bool> rope_layers;  // [layer]: has rotary embeddings; empty: all have

  // Factors of the embedding's output, of what attention and MLP add to the residual stream, and of
  // the logits.
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logits_multiplier = 1;

  // Number of tokens that a token sees, itself included, in the layers whose flag is set. 0 means
  // no layer.
  int64_t sliding_window = 0;
  std::vector<bool> windowed_layers;

  // Probabilities that an element becomes 0 in training: of the embedding's output, of attention's
  // probabilities, of the outputs of attention and MLP that are added to the residual stream.
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;

  // Token whose row of the embedding gets no gradient from the lookup, as nn.Embedding's
  // padding_idx; -1: none.
  int64_t padding_token = -1;

  bool tie_word_embeddings = false;  // the head's weight is the embedding's
  std::optional<QuantizationSpec> quantization = std::nullopt;
  double initializer_range = 0.02;
  // Precision of the checkpoint as config.json names it ("bfloat16"); empty if not given.
  std::string dtype;

  // Keys with no known influence, which are worth one printed line.
  std::vector<std::string> unknown_keys;

  // Returns the layer's window; 0 if the layer sees everything before a token.
  int64_t layer_window(int64_t layer) const;
  // Returns whether the layer rotates q and k.
  bool has_rope(int64_t layer) const;
  // Returns the factor on the layer's products of q and k.
  double score_scale(int64_t layer) const;
};

// Sets every dropout that the family has.
void override_dropout(ModelSpec& spec, double p);

// Reads `directory`/config.json. Throws one Error that lists every key that is missing, malformed
// or would change the computation in a way that is not supported.
ModelSpec read_model_spec(const std::filesystem::path& directory);

// Reads a spec from the text of a config.json, with the errors of read_model_spec(); `origin` names
// the text in messages.
ModelSpec parse_model_spec(const std::string& text, const std::string& origin);

// The arithmetic that training a model requires. Returns floating-point operations of forward and
// backward per token of a sequence of `seq` tokens: 6 for every weight of a product (2 forward, 4
// backward), the head's included and the embedding's not, and 12 for every channel of every earlier
// token that attention sees. Recomputed work and anything that is not a product are not counted.
double flops_per_token(const ModelSpec& spec, int64_t seq);

// Returns operations of forward alone, for each block of build_blocks() in its order; they sum up
// to a third of flops_per_token().
std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq);

}  // namespace zeroth::model
