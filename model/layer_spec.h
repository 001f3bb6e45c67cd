// What the layers of a transformer are made of, in the terms in which families differ: norms,
// rotary embeddings, experts, and one record per layer for what its layers do not share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zeroth::model {

enum class NormKind { kRms, kLayer };

struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 1e-6;
  bool weight = true;
  bool bias = false;         // kLayer only
  double weight_offset = 0;  // added to the weight: 1 where files hold it around 0 (Gemma)
  // kRms only: the product with the weight is in fp32, and rounded once; otherwise its factor is
  // rounded, too. Only runs in 16 bits differ.
  bool product_in_fp32 = false;
};

// Where a half of a layer, attention or feed-forward, is normalized: its input, its output before
// that is added to the residual stream, or both.
enum class NormPlacement { kPre, kPost, kSandwich };

// Whether the feed-forward reads what attention reads (GPT-J: normalized once; GPT-NeoX: by a norm
// of its own), not the residual stream after attention.
enum class ParallelResidual { kNone, kOneNorm, kTwoNorms };

// What a norm of q and k sees at once: each head, with the same weight or with one of its own, or
// all heads.
enum class QkNorm { kNone, kPerHead, kPerHeadOwnWeight, kAllHeads };

// How files hold q, k and v: as three products, as one whose rows are those of q, then k, then v,
// or as one with the rows of each group of query heads and their key and value head together.
enum class QkvLayout { kSeparate, kStacked, kGrouped };

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared, kXielu };
enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

struct RopeSpec {
  double theta = 10000;
  int64_t head_dim = 0;      // of the layers that use these embeddings; 0: ModelSpec's
  int64_t rotary_dim = 0;    // so many dimensions of each head rotate, its first ones; 0: all
  bool interleaved = false;  // dimensions 2i and 2i + 1 are a pair, not i and i + half
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
  double mscale_all_dim = 0;
  // Read by kLongRope: divisors of the frequencies, half as many as dimensions that rotate, in
  // sequences up to the original context and in longer ones.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
  // Read by kProportional: this share of the pairs of dimensions rotates, those of the highest
  // frequencies.
  double rotated_share = 1;
};

// Queries at later positions are scaled up: by 1 + scale * log(1 + floor((position + offset) /
// interval)) (Ministral 3, Llama 4).
struct QueryScale {
  double scale = 0;
  int64_t interval = 1;
  int64_t offset = 0;
};

// Latent attention (DeepSeek): keys and values of all heads are products of one short vector,
// beside a part of the keys that rotates and that all heads share; so are the queries, if q_rank is
// set.
struct LatentSpec {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0;  // of each head's q and k: what does not rotate, and does
  int64_t v_dim = 0;
};

// A gated delta net (Qwen3-Next, Qwen3.5): a causal convolution of q, k and v, and a state of each
// value head in place of scores. The state decays, and each token corrects what its key reads there
// towards its value.
struct DeltaNetSpec {
  int64_t key_heads = 0;
  int64_t value_heads = 0;             // a multiple: neighboring ones share a head of q and k
  int64_t key_dim = 0, value_dim = 0;  // of each head
  int64_t kernel = 0;                  // tokens that the convolution sees, itself included
  // Files hold q, k, v and z as one product, and b and a as another, with the rows of each key head
  // and its value heads together. Otherwise q, k and v are one product.
  bool fused = false;
};

// A short convolution (LFM2): each channel is a causal convolution over the last `kernel_size`
// tokens, between two gates.
struct ShortConvSpec {
  int64_t kernel_size = 0;
  bool bias = false;  // of products and convolution
};

enum class RouterScore { kSoftmax, kSigmoid };

// How a token's experts are chosen and weighted.
struct RouterSpec {
  RouterScore score = RouterScore::kSoftmax;
  bool bias = false;               // of the logits
  bool correction_bias = false;    // added to the scores for the choice alone, and not trained
  bool correction_in_row = false;  // files hold that as [1, experts]
  // The experts are in so many neighboring groups, of which the best are kept: by their two best
  // experts, or by their best one.
  int64_t groups = 1, kept_groups = 1;
  bool groups_by_two = true;
  bool normalize = true;      // weights of a token's experts sum up to 1
  double min_sum = 1e-20;     // for which smaller sums are taken when they are normalized
  double scale = 1;           // of the weights
  bool scales_input = false;  // the weights scale the experts' inputs (Llama 4)
  bool in_fp32 = false;       // logits are computed in fp32, also in runs of 16 bits
  // The input is normalized, and times 1 / sqrt(hidden size) and a trained vector, and the weights
  // are times a trained factor of each expert, after all else. The product is a Linear (Gemma 4).
  bool has_scales = false;
};

// The experts of a layer: `top_k` of `num_experts` gated MLPs for each token, and one for all of
// them if it has a size.
struct ExpertsSpec {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  RouterSpec router = {};
  bool in_out = false;       // matrices are stored [in, out]
  bool interleaved = false;  // gate and up are every second column, not halves
  bool bias = false;
  double limit = 0;  // gpt-oss: gate and up are clamped to it, and the activation is its own
  int64_t shared_intermediate_size = 0;
  bool shared_gate = false;  // the shared expert's output is times sigmoid(a product with x)
  double aux_loss_coef = 0;  // of the load balancing loss; 0: none
  // They are beside the layer's MLP, with norms of their own, not in place of it (Gemma 4).
  bool beside_mlp = false;
};

// Each layer has an input of `size` of its own for each token: a row of a table, plus a product of
// the token's embedding that is normalized (Gemma 4).
struct PerLayerInputSpec {
  int64_t vocab_size = 0;  // of the table
  int64_t size = 0;
};

// What mixes the tokens of a sequence in a layer.
enum class LayerMixer { kAttention, kDeltaNet, kShortConv };

// Returns the name of the mixer's module in its block.
constexpr const char* mixer_module(LayerMixer mixer) {
  switch (mixer) {
    case LayerMixer::kAttention:
      return "attention";
    case LayerMixer::kDeltaNet:
      return "delta_net";
    case LayerMixer::kShortConv:
      return "conv";
  }
  return "";
}

enum class LayerRope { kNone, kGlobal, kLocal };

// What a layer does not share with the others.
struct LayerSpec {
  LayerMixer mixer = LayerMixer::kAttention;
  int64_t window = 0;  // tokens that a token sees, itself included; 0: all before it
  int64_t chunk = 0;   // a token sees those of its chunk of so many positions; 0: all before it
  LayerRope rope = LayerRope::kGlobal;            // ModelSpec::rope or local_rope
  std::optional<int64_t> head_dim = {};           // unset: ModelSpec's
  std::optional<int64_t> num_kv_heads = {};       // unset: ModelSpec's
  bool k_is_v = false;                            // v is the product of k, before k's norm
  std::optional<int64_t> kv_layer = {};           // the layer before it whose k and v it uses
  std::optional<double> score_scale = {};         // of q k^T; unset: 1 / sqrt(head_dim)
  bool scales_queries = false;                    // by ModelSpec::query_scale
  bool qk_norm = true;                            // ModelSpec::qk_norm applies
  bool experts = false;                           // the layer has ModelSpec::experts
  std::optional<int64_t> intermediate_size = {};  // of the MLP; unset: ModelSpec's

  bool operator==(const LayerSpec&) const = default;
};

}  // namespace zeroth::model
