#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/custom_function.h"
#include "model/kernels/sequence_kernels.h"

namespace zeroth::model {
namespace {

using at::matmul;
using torch::Tensor;

constexpr int64_t kChunk = 64;
// Elements of a temporary: on a GPU, which few heads do not fill, and elsewhere.
constexpr int64_t kMaxTemporaryGpu = int64_t{1} << 24, kMaxTemporary = int64_t{1} << 21;
constexpr double kLengthEps = 1e-6;

Tensor transposed(const Tensor& x) {
  return x.transpose(-1, -2);
}

// Returns sums over the last dimension, which stays.
Tensor row_sums(const Tensor& x) {
  return x.sum(-1, /*keepdim=*/true);
}

// Returns 1 / length of the last dimension's vectors.
Tensor inverse_lengths(const Tensor& x) {
  return row_sums(x.square()).add_(kLengthEps).rsqrt_();
}

// ChunkGrid arranges the tokens of all value heads in chunks: [batch, seq, heads, ...] becomes
// [chunks, batch * heads, chunk, ...], with zeros behind each row's last token.
class ChunkGrid {
 public:
  explicit ChunkGrid(const Tensor& v)
      : batch_(v.size(0)),
        seq_(v.size(1)),
        heads_(v.size(2)),
        chunk_(std::min(kChunk, seq_)),
        chunks_((seq_ + chunk_ - 1) / chunk_) {}

  int64_t chunk() const { return chunk_; }

  // x [batch, seq, heads, n] or [batch, seq, heads, 1].
  Tensor arrange(const Tensor& x) const {
    const int64_t missing = chunks_ * chunk_ - seq_;
    const Tensor all = missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, 0, 0, missing});
    return all.view({batch_, chunks_, chunk_, heads_, -1})
        .permute({1, 0, 3, 2, 4})
        .reshape({chunks_, batch_ * heads_, chunk_, -1});
  }

  // The reverse of arrange().
  Tensor flatten(const Tensor& x) const {
    return x.view({chunks_, batch_, heads_, chunk_, -1})
        .permute({1, 0, 3, 2, 4})
        .reshape({batch_, chunks_ * chunk_, heads_, -1})
        .narrow(1, 0, seq_);
  }

  // Hidden are the pairs of which a factor is zero, as masks [chunks, 1 or lanes, ...].
  struct Hidden {
    Tensor pairs;  // [.., chunk, chunk]: the column's token is behind the row's, or not seen by it
    Tensor read;  // [.., chunk, 1]: the token does not see those before the chunk; may be undefined
    Tensor write;  // [.., chunk, 1]: the chunk's last token does not see this one; may be undefined
  };
  Hidden hidden(const Tensor& first_keys, const Tensor& like) const {
    const Tensor later =
        at::ones({chunk_, chunk_}, like.options().dtype(torch::kBool)).triu_(/*diagonal=*/1);
    if (!first_keys.defined()) return {later, {}, {}};
    const Tensor first =
        arrange(first_keys.unsqueeze(2).expand({batch_, seq_, heads_}).unsqueeze(3));
    const Tensor tokens =
        at::arange(chunks_ * chunk_, first.options()).view({chunks_, 1, chunk_, 1});
    return {transposed(tokens).lt(first).logical_or_(later), first.ge(tokens.narrow(2, 0, 1)),
            tokens.lt(first.narrow(2, chunk_ - 1, 1))};
  }

 private:
  int64_t batch_, seq_, heads_, chunk_, chunks_;
};

// Returns x [batch, seq, key heads, n] in fp32 with vectors of length `length`, for each value
// head.
Tensor normalize(const Tensor& x, int64_t value_heads, double length) {
  const Tensor wide = x.to(torch::kFloat);
  return (wide * inverse_lengths(wide).mul_(length))
      .repeat_interleave(value_heads / x.size(2), /*dim=*/2);
}

// Returns the gradient of x from that of normalize().
Tensor normalize_backward(const Tensor& dy, const Tensor& x, double length) {
  const Tensor wide = x.to(torch::kFloat), scale = inverse_lengths(wide);
  const Tensor dnormal = dy.unflatten(2, {x.size(2), dy.size(2) / x.size(2)}).sum(3).mul_(length);
  const Tensor normal = wide * scale;
  return ((dnormal - normal * row_sums(normal * dnormal)) * scale).to(x.scalar_type());
}

// ChunkedRule is one evaluation of the rule. A chunk that begins at the state S corrects by N = U -
// W S, returns (read q) S + scores N, and ends at the state last S + (write k)^T N. U and W are
// solved from the chunk's own tokens; read, write and last are products of decays, from the chunk's
// beginning to each token, from there to its end, and over all of it.
class ChunkedRule {
 public:
  ChunkedRule(const DeltaRuleInputs& in, const Tensor& first_keys)
      : in_(in), grid_(in.v), query_length_(1 / std::sqrt(static_cast<double>(in.k.size(3)))) {
    const int64_t heads = in.v.size(2);
    q_ = grid_.arrange(normalize(in.q, heads, query_length_));
    k_ = grid_.arrange(normalize(in.k, heads, 1));
    v_ = grid_.arrange(in.v.to(torch::kFloat));
    beta_ = grid_.arrange(in.beta.unsqueeze(3));
    set_decays(grid_.arrange(in.decay.unsqueeze(3)), grid_.hidden(first_keys, k_));
    beta_k_ = k_ * beta_;
    system_ = matmul(beta_k_, transposed(k_)).mul_(pairs_);
    scores_ = matmul(q_, transposed(k_)).mul_(pairs_);
    solved_ = solve(system_, at::cat({v_ * beta_, beta_k_ * read_}, -1), /*upper=*/false);
    w_ = solved_.narrow(-1, v_.size(3), k_.size(3));
    scan();
  }

  Tensor output() const {
    const Tensor y = matmul(q_ * read_, states_).add_(matmul(scores_, corrections_));
    return grid_.flatten(y).to(in_.v.scalar_type());
  }

  // Returns the gradients of q, k, v, decay and beta.
  TensorVector backward(const Tensor& dout) const {
    const Tensor dy = grid_.arrange(dout.to(torch::kFloat));
    const auto [dcorrections, dends] = scan_backward(dy);
    const Tensor dsolved =
        at::cat({dcorrections, matmul(dcorrections, transposed(states_)).neg_()}, -1);
    const Tensor dright = solve(transposed(system_), dsolved, /*upper=*/true);
    const Tensor dright_v = dright.narrow(-1, 0, v_.size(3));
    const Tensor dright_k = dright.narrow(-1, v_.size(3), k_.size(3));
    // The system has ones on its diagonal.
    const Tensor dsystem = matmul(dright, transposed(solved_)).neg_().tril_(/*diagonal=*/-1);
    const Tensor dscores = matmul(dy, transposed(corrections_));
    const Tensor dlog_pairs = dsystem * system_ + dscores * scores_;
    dsystem.mul_(pairs_);
    dscores.mul_(pairs_);
    const Tensor dread_q = matmul(dy, transposed(states_));
    const Tensor dwrite_k = matmul(corrections_, transposed(dends));
    const Tensor dbeta_k = matmul(dsystem, k_).addcmul_(dright_k, read_);

    const Tensor dlog_write = row_sums(dwrite_k * k_).mul_(write_);
    const Tensor dlog_last = (dends * states_).sum({-2, -1}, /*keepdim=*/true).mul_(last_);
    Tensor dlogs = row_sums(dread_q * q_).add_(row_sums(dright_k * beta_k_)).mul_(read_);
    dlogs.add_(row_sums(dlog_pairs)).sub_(transposed(dlog_pairs.sum(-2, /*keepdim=*/true)));
    dlogs.sub_(dlog_write);
    dlogs.narrow(2, grid_.chunk() - 1, 1).add_(dlog_write.sum(2, true)).add_(dlog_last);

    const Tensor dq = matmul(dscores, k_).addcmul_(dread_q, read_);
    const Tensor dk = matmul(transposed(dscores), q_)
                          .add_(matmul(transposed(dsystem), beta_k_))
                          .addcmul_(dbeta_k, beta_)
                          .addcmul_(dwrite_k, write_);
    const Tensor dbeta = row_sums(dbeta_k * k_).add_(row_sums(dright_v * v_));
    // A token's decay is in the sums of all tokens from it on.
    const Tensor ddecay = dlogs.flip(2).cumsum(2).flip(2);
    return {normalize_backward(grid_.flatten(dq), in_.q, query_length_),
            normalize_backward(grid_.flatten(dk), in_.k, 1),
            grid_.flatten(dright_v * beta_).to(in_.v.scalar_type()),
            grid_.flatten(ddecay).squeeze(3), grid_.flatten(dbeta).squeeze(3)};
  }

 private:
  static Tensor solve(const Tensor& system, const Tensor& right, bool upper) {
    return at::linalg_solve_triangular(system, right, upper, /*left=*/true, /*unitriangular=*/true);
  }

  // Sets products of decays from their logarithms [chunks, lanes, chunk, 1].
  void set_decays(const Tensor& logs, const ChunkGrid::Hidden& hidden) {
    const auto product = [](Tensor sums, const Tensor& zeros) {
      if (zeros.defined()) sums.masked_fill_(zeros, -std::numeric_limits<double>::infinity());
      return sums.exp_();
    };
    const int64_t end = grid_.chunk() - 1;
    const Tensor sums = logs.cumsum(2);
    pairs_ = product(sums - transposed(sums), hidden.pairs);
    write_ = product(sums.narrow(2, end, 1) - sums, hidden.write);
    read_ = product(sums, hidden.read);
    last_ = read_.narrow(2, end, 1);
  }

  // Computes the states [chunks, lanes, key_dim, value_dim] at which chunks begin, and the
  // corrections [chunks, lanes, chunk, value_dim].
  void scan() {
    const int64_t chunks = k_.size(0);
    corrections_ = solved_.narrow(-1, 0, v_.size(3)).clone(at::MemoryFormat::Contiguous);
    states_ = at::empty({chunks, k_.size(1), k_.size(3), v_.size(3)}, k_.options());
    states_[0].zero_();
    for (int64_t i = 0; i + 1 < chunks; ++i) {
      corrections_[i].baddbmm_(w_[i], states_[i], /*beta=*/1, /*alpha=*/-1);
      Tensor next = states_[i + 1];
      at::mul_out(next, states_[i], last_[i]);
      next.baddbmm_(transposed(k_[i] * write_[i]), corrections_[i]);
    }
    corrections_[chunks - 1].baddbmm_(w_[chunks - 1], states_[chunks - 1], 1, -1);
  }

  // Returns the gradients of the corrections, and of the states at which chunks end.
  std::pair<Tensor, Tensor> scan_backward(const Tensor& dy) const {
    const Tensor dcorrections = matmul(transposed(scores_), dy);
    const Tensor dends = at::empty_like(states_);
    const int64_t chunks = k_.size(0);
    dends[chunks - 1].zero_();
    for (int64_t i = chunks - 1; i > 0; --i) {
      dcorrections[i].baddbmm_(k_[i] * write_[i], dends[i]);
      Tensor before = dends[i - 1];
      at::mul_out(before, dends[i], last_[i]);
      before.baddbmm_(transposed(w_[i]), dcorrections[i], /*beta=*/1, /*alpha=*/-1);
      before.baddbmm_(transposed(q_[i] * read_[i]), dy[i]);
    }
    dcorrections[0].baddbmm_(k_[0] * write_[0], dends[0]);
    return {dcorrections, dends};
  }

  const DeltaRuleInputs& in_;
  ChunkGrid grid_;
  double query_length_;
  Tensor q_, k_, v_, beta_;  // [chunks, lanes, chunk, ...] fp32, q and k normalized
  Tensor pairs_;             // [.., chunk, chunk]: decays from the column's token to the row's
  Tensor read_, write_;      // [.., chunk, 1]
  Tensor last_;              // [.., 1, 1]
  Tensor beta_k_, system_, scores_, solved_, w_;
  Tensor states_, corrections_;
};

// Inputs are those of DeltaRuleInputs, in their order.
class DeltaRule final : public CustomFunction {
 public:
  explicit DeltaRule(DeltaRuleOptions options) : options_(std::move(options)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    return by_heads(inputs, [](const ChunkedRule& rule, int64_t, int64_t) {
      return TensorVector{rule.output()};
    });
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    return by_heads(context.saved(), [&](const ChunkedRule& rule, int64_t first, int64_t count) {
      return rule.backward(grads[0].narrow(2, first, count));
    });
  }

 private:
  // Returns the results of fn(rule, first value head, count) for a few heads at a time, side by
  // side.
  template <typename Fn>
  TensorVector by_heads(const TensorVector& inputs, const Fn& fn) const {
    const Tensor &k = inputs[1], &v = inputs[2];
    const int64_t key_heads = k.size(2), group = v.size(2) / key_heads;
    const int64_t of_head = v.size(0) * v.size(1) * group * std::max(k.size(3), v.size(3));
    const int64_t of_device = v.is_cuda() ? kMaxTemporaryGpu : kMaxTemporary;
    const int64_t max_temporary = options_.max_temporary > 0 ? options_.max_temporary : of_device;
    const int64_t max_count = std::clamp<int64_t>(max_temporary / of_head, 1, key_heads);
    std::vector<TensorVector> results;  // by output
    for (int64_t first = 0; first < key_heads; first += max_count) {
      const int64_t count = std::min(max_count, key_heads - first);
      const auto keys = [&](const Tensor& x) { return x.narrow(2, first, count); };
      const auto values = [&](const Tensor& x) {
        return x.narrow(2, first * group, count * group);
      };
      const DeltaRuleInputs own = {keys(inputs[0]), keys(k), values(v), values(inputs[3]),
                                   values(inputs[4])};
      const TensorVector found =
          fn(ChunkedRule(own, options_.first_keys), first * group, count * group);
      results.resize(found.size());
      for (size_t i = 0; i < found.size(); ++i) results[i].push_back(found[i]);
    }
    TensorVector joined;
    for (const TensorVector& parts : results)
      joined.push_back(parts.size() == 1 ? parts[0] : at::cat(parts, 2));
    return joined;
  }

  DeltaRuleOptions options_;
};

}  // namespace

Tensor gated_delta_rule(const DeltaRuleInputs& inputs, const DeltaRuleOptions& options) {
  return apply_function(std::make_shared<DeltaRule>(options),
                        {inputs.q, inputs.k, inputs.v, inputs.decay, inputs.beta})[0];
}

}  // namespace zeroth::model
