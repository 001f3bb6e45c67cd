#include "model/blocks/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "model/blocks/open_gradient.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a table. The gradient of a row is added where it lies, its sum rounded once: no
// table-sized temporary when a gradient view is open.
struct Lookup : torch::autograd::Function<Lookup> {
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Tensor& rows) {
    ctx->save_for_backward({table, rows});
    return at::embedding(table, rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& table = saved[0];
    const Tensor open = open_gradient(table);
    Tensor gradient = open.defined() ? open : at::zeros(table.sizes(), dys[0].options());
    if (open.defined() && is_fresh(open)) gradient.zero_();
    add_rows_(gradient, saved[1].reshape({-1}), dys[0].reshape({-1, table.size(1)}));
    return {open.defined() ? Tensor() : gradient, Tensor()};
  }
};

Tensor meta_parameter(int64_t rows, int64_t size) {
  return torch::empty({rows, size}, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Embedding::Embedding(const ModelSpec& spec)
    : Block("embedding"), drop_(drop_site(spec.embedding_dropout, label())) {
  weight_ = register_parameter("weight", meta_parameter(spec.vocab_size, spec.hidden_size));
  if (spec.learned_positions) {
    positions_ =
        register_parameter("positions", meta_parameter(spec.max_positions, spec.hidden_size));
  }
}

Tensor Embedding::forward(const Tensor&, const MicroBatch& batch) {
  const Tensor y = Lookup::apply(weight_, batch.tokens);
  if (!positions_.defined()) return dropout(y, drop_, batch);
  const int64_t seq = batch.tokens.size(1);
  if (seq > positions_.size(0)) {
    throw Error("a sequence of {} tokens is longer than the model's {} positions", seq,
                positions_.size(0));
  }
  const Tensor positions = batch.positions.defined()
                               ? batch.positions
                               : torch::arange(seq, batch.tokens.options()).unsqueeze(0);
  return dropout(y + Lookup::apply(positions_, positions), drop_, batch);
}

}  // namespace zeroth::model
