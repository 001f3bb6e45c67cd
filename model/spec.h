// A ModelSpec holds what a Hugging Face config.json says about the computation: one description of
// a transformer layer for all families.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/layer_spec.h"

namespace zeroth::model {

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

// A CopiedTensor is a tensor of a model's files that is not trained; a saved model has its bytes.
struct CopiedTensor {
  std::string name;
  std::string dtype;  // as in the header of the file: "BF16", ...
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// A MultimodalModel is one of which a spec describes the language model, the part that is trained.
struct MultimodalModel {
  std::string model_type;  // of config.json; that of its text_config is the spec's family
  // What the files hold beside the language model, and whether they have the names of transformers
  // 4 ("language_model.model."). read_model_spec() reads that from the files.
  std::filesystem::path directory = {};
  std::vector<CopiedTensor> others = {};
  bool has_old_names = false;
};

struct ModelSpec {
  std::string family;  // model_type of config.json or its text_config (hf/families)
  std::optional<MultimodalModel> multimodal = {};

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;

  // What layers do not share, one record for each; empty: all are as LayerSpec is by default.
  std::vector<LayerSpec> layers;

  NormSpec norm;
  NormPlacement norm_placement = NormPlacement::kPre;
  ParallelResidual parallel_residual = ParallelResidual::kNone;

  bool qkv_bias = false;
  bool o_bias = false;
  QkvLayout qkv_layout = QkvLayout::kSeparate;
  std::optional<double> clip_qkv = {};  // q, k and v are clamped to [-clip, clip]
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;
  bool qk_norm_after_rope = false;
  bool v_norm = false;                    // of each head, as qk_norm_spec without a weight
  double score_softcap = 0;               // CausalAttention::softcap
  bool sinks = false;                     // CausalAttention::sinks
  std::vector<double> alibi_slopes = {};  // CausalAttention::slopes, of all heads; empty: none
  std::optional<QueryScale> query_scale = {};
  std::optional<LatentSpec> latent = {};
  // The product of q holds a gate behind each head's q: the head's output is times sigmoid(gate).
  bool gated_attention = false;
  std::optional<DeltaNetSpec> delta_net = {};    // of LayerMixer::kDeltaNet
  std::optional<ShortConvSpec> short_conv = {};  // of LayerMixer::kShortConv

  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // down(act(gate(x)) * up(x)); else down(act(up(x)))
  bool mlp_bias = false;
  bool fused_gate_up = false;  // files hold gate and up as one product: gate's rows, then up's
  std::optional<ExpertsSpec> experts = {};
  std::optional<PerLayerInputSpec> per_layer_input = {};
  bool layer_scalar = false;  // a layer's output is times a constant of the model's files

  bool conv1d = false;  // weights are stored [in, out] (GPT-2's Conv1D)
  // A trained table is added to the embedding, of max_positions rows after the first
  // `position_offset` ones, which no token reads; otherwise there are rotary embeddings.
  bool learned_positions = false;
  int64_t position_offset = 0;
  RopeSpec rope;
  RopeSpec local_rope;  // of LayerRope::kLocal

  // Factors of the embedding's output, of what attention and MLP add to the residual stream, and of
  // the logits.
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logits_multiplier = 1;
  bool rounds_embedding_multiplier = false;  // to the dtype in which the run computes
  bool embedding_norm = false;               // `norm` is applied to the embedding's output
  double logits_softcap = 0;  // a logit z becomes softcap * tanh(z / softcap); 0: it stays
  bool head_bias = false;

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

  const LayerSpec& layer(int64_t index) const;
  // Returns the factor on the layer's products of q and k.
  double score_scale(int64_t index) const;
  // Return the size of the layer's heads, the number of its key and value heads, and the
  // intermediate size of its MLP, which it has unless has_mlp() is false.
  int64_t layer_head_dim(int64_t index) const;
  int64_t layer_kv_heads(int64_t index) const;
  int64_t mlp_size(int64_t index) const;
  bool has_mlp(int64_t index) const;
};

// CarriedStates are what the input of a layer holds of each token behind the hidden state, for this
// layer and those after it.
struct CarriedStates {
  int64_t per_layer_inputs = 0;         // those of so many layers, this one's first
  std::vector<int64_t> kv_layers = {};  // whose keys and values follow, in this order
};

// Returns what is carried into the layer `index`, or, for num_layers, nothing.
CarriedStates carried_states(const ModelSpec& spec, int64_t index);
// Returns the elements of each row in the parts of the layer's input: the hidden state, the layer's
// own input, the inputs of those after it, and keys and values of each of CarriedStates::kv_layers.
// `ranks` split the layer: each row of its tokens then also has a part of the keys and values of
// all tokens for its heads. num_layers stands for the head.
std::vector<int64_t> input_sizes(const ModelSpec& spec, int64_t index, int64_t ranks = 1);

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
// backward), the head's included and the embedding's not, 12 for every channel of every earlier
// token that attention sees, and 18 for every element of a delta net's states, which is read for
// the correction, corrected, and read for the output. Recomputed work and anything that is not a
// product are not counted.
double flops_per_token(const ModelSpec& spec, int64_t seq);

// Returns operations of forward alone, for each block of build_blocks() in its order; they sum up
// to a third of flops_per_token().
std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq);

}  // namespace zeroth::model
