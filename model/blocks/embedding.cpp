#include "model/blocks/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "model/blocks/open_gradient.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kPadding = "padding";
constexpr int64_t kNoPadding = -1;

// Rows of a table. The gradient of a row is added where it lies, its sum rounded once: no
// table-sized temporary when a gradient view is open. The row `padding` gets none.
struct Lookup : torch::autograd::Function<Lookup> {
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Tensor& rows,
                        int64_t padding) {
    ctx->save_for_backward({table, rows});
    ctx->saved_data[kPadding] = padding;
    return at::embedding(table, rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& rows = saved[1];
    const int64_t padding = ctx->saved_data[kPadding].toInt();
    const Tensor dy = padding == kNoPadding ? dys[0] : without(dys[0], rows.eq(padding));
    return {add_to_rows(saved[0], rows, dy), Tensor(), Tensor()};
  }

  // dy, but zeros where `left_out` is set, also in place of what is not finite.
  static Tensor without(const Tensor& dy, const Tensor& left_out) {
    return dy.masked_fill(left_out.unsqueeze(-1), 0);
  }

  // Delivers the gradient of these rows of a table, or returns it.
  static Tensor add_to_rows(const Tensor& table, const Tensor& rows, const Tensor& dy) {
    const Tensor open = open_gradient(table);
    Tensor gradient = open.defined() ? open : at::zeros(table.sizes(), dy.options());
    if (open.defined() && is_fresh(open)) gradient.zero_();
    add_rows_(gradient, rows.reshape({-1}), dy.reshape({-1, table.size(1)}));
    return open.defined() ? Tensor() : gradient;
  }
};

// Tokens [n] of a vocabulary that ranks share -> this rank's run of their vectors, each from the
// one rank that has it.
struct SharedLookup : torch::autograd::Function<SharedLookup> {
  static constexpr const char* kWhat = "embeddings";

  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Tensor& tokens,
                        const Vocabulary& vocabulary, int64_t padding) {
    const auto [rows, here] = vocabulary.rows_of(tokens);
    Tensor left_out = here.logical_not();
    if (padding != kNoPadding) left_out.logical_or_(tokens.eq(padding));
    ctx->save_for_backward({table, rows, left_out});
    save_ranks(ctx, vocabulary.ranks);
    const Tensor found = at::embedding(table, rows).mul_(here.unsqueeze(1));
    return vocabulary.ranks->scatter_sum(filled_up(found, *vocabulary.ranks), kWhat);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &rows = saved[1], &left_out = saved[2];
    const Tensor dy =
        saved_ranks(ctx)->gather(dys[0], "gradients of embeddings").narrow(0, 0, rows.size(0));
    return {Lookup::add_to_rows(saved[0], rows, Lookup::without(dy, left_out)), Tensor(), Tensor(),
            Tensor()};
  }
};

Tensor meta_parameter(int64_t rows, int64_t size) {
  return torch::empty({rows, size}, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Embedding::Embedding(const ModelSpec& spec, TensorRanksPtr ranks)
    : Block("embedding"),
      vocabulary_(spec.vocab_size, std::move(ranks)),
      padding_token_(spec.padding_token),
      drop_(drop_site(spec.embedding_dropout, label())) {
  weight_ = register_parameter("weight", meta_parameter(vocabulary_.own, spec.hidden_size));
  if (spec.learned_positions) {
    positions_ =
        register_parameter("positions", meta_parameter(spec.max_positions, spec.hidden_size));
  }
}

std::optional<Splits> Embedding::splits() const {
  if (!vocabulary_.ranks) return std::nullopt;
  return Splits{{"weight", vocabulary_.split("weight", weight_.size(1))}};
}

Tensor Embedding::forward(const Tensor&, const MicroBatch& batch) {
  const int64_t seq = batch.tokens.size(1);
  if (positions_.defined() && seq > positions_.size(0)) {
    throw Error("a sequence of {} tokens is longer than the model's {} positions", seq,
                positions_.size(0));
  }
  if (vocabulary_.ranks) return own_run(batch);
  const Tensor y = Lookup::apply(weight_, batch.tokens, padding_token_);
  if (!positions_.defined()) return dropout(y, drop_, batch);
  const Tensor positions = batch.positions.defined()
                               ? batch.positions
                               : torch::arange(seq, batch.tokens.options()).unsqueeze(0);
  return dropout(y + Lookup::apply(positions_, positions, kNoPadding), drop_, batch);
}

Tensor Embedding::own_run(const MicroBatch& batch) const {
  const TokenRun run = token_run(batch.tokens.numel(), *vocabulary_.ranks);
  Tensor y = SharedLookup::apply(weight_, batch.tokens.flatten(), vocabulary_, padding_token_);
  if (positions_.defined()) y = y + positions_of(batch, run);
  return dropout(y, drop_, batch, run.first);
}

// Rows that fill the run up have the last token's position: any will do.
Tensor Embedding::positions_of(const MicroBatch& batch, const TokenRun& run) const {
  const int64_t last = batch.tokens.numel() - 1;
  const Tensor tokens =
      torch::arange(run.first, run.first + run.rows, batch.tokens.options()).clamp_max_(last);
  const Tensor positions = batch.positions.defined()
                               ? batch.positions.flatten().index_select(0, tokens)
                               : tokens.remainder(batch.tokens.size(1));
  return Lookup::apply(positions_, positions, kNoPadding);
}

}  // namespace zeroth::model
