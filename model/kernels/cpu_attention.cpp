#include "model/kernels/attention_kernels.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/sum.h>

#include <utility>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/machine/parallel.h"
#include "model/custom_function.h"
#include "model/kernels/cpu/select.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using cpu::data;
using torch::Tensor;

// Calls oneDNN's kernel for products of small tiles.
void multiply(const cpu::TileProduct& p, const float* a, const float* b, float* c) {
  at::native::cpublas::brgemm(p.m, p.n, p.k, p.k, p.n, p.n, p.add, a, b, c, /*is_vnni=*/false);
}

void multiply(const cpu::TileProduct& p, const Bf16* a, const Bf16* b, float* c) {
  at::native::cpublas::brgemm(p.m, p.n, p.k, p.k, p.n, p.n, p.add,
                              reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c, /*is_vnni=*/true);
}

// Returns x with heads and channels without gaps, as the kernels require. A view of a wider product
// is fine.
Tensor with_dense_heads(const Tensor& x) {
  const bool dense = x.stride(3) == 1 && x.stride(2) == x.size(3) &&
                     (x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1));
  return dense ? x : x.contiguous();
}

struct AttentionTensors {
  Tensor q, k, v, out, lse;  // lse [batch, kv_heads, group, seq]
  Tensor sinks;              // [heads] fp32, or undefined
};

// Returns the heads from `head` on in a row of the batch, x [batch, seq, heads, dim].
template <typename T>
cpu::HeadArray<T> heads_from(const Tensor& x, int64_t row, int64_t head) {
  return {data<T>(x) + row * x.size(1) * x.stride(1) + head * x.size(3), x.stride(1)};
}

const int64_t* first_keys_of(const CausalAttention& options, int64_t row, int64_t seq) {
  return options.first_keys.defined() ? options.first_keys.const_data_ptr<int64_t>() + row * seq
                                      : nullptr;
}

template <typename T, typename Tile>
cpu::AttentionHeads<T, Tile> make_heads(const AttentionTensors& in, int64_t row, int64_t kv_head,
                                        const CausalAttention& options) {
  const int64_t seq = in.q.size(1), group = in.q.size(2) / in.k.size(2);
  return {
      .q = heads_from<const T>(in.q, row, kv_head * group),
      .k = heads_from<const T>(in.k, row, kv_head),
      .v = heads_from<const T>(in.v, row, kv_head),
      .out = heads_from<T>(in.out, row, kv_head * group),
      .lse = data<float>(in.lse) + (row * in.k.size(2) + kv_head) * group * seq,
      .group = group,
      .dim = in.q.size(3),
      .v_dim = in.v.size(3),
      .visible = {seq, options.window, first_keys_of(options, row, seq)},
      .scale = static_cast<float>(options.scale),
      .softcap = static_cast<float>(options.softcap),
      .sinks = in.sinks.defined() ? data<float>(in.sinks) + kv_head * group : nullptr,
      .slopes = options.slopes.defined() ? data<float>(options.slopes) + kv_head * group : nullptr,
      .multiply = multiply};
}

struct AttentionGradTensors {
  Tensor dy, dq, dk, dv;
  Tensor dsinks;  // [batch, heads] fp32, or undefined
};

template <typename T>
cpu::AttentionGradients<T> make_gradients(const AttentionGradTensors& to, int64_t row,
                                          int64_t kv_head) {
  const int64_t first = kv_head * (to.dq.size(2) / to.dk.size(2));
  return {.dout = heads_from<const T>(to.dy, row, first),
          .dq = heads_from<T>(to.dq, row, first),
          .dk = heads_from<T>(to.dk, row, kv_head),
          .dv = heads_from<T>(to.dv, row, kv_head),
          .dsinks =
              to.dsinks.defined() ? data<float>(to.dsinks) + row * to.dq.size(2) + first : nullptr};
}

// Calls work(kernels) for the dtype of q, with tiles of it or of fp32.
template <typename Work>
void with_attention(const Tensor& q, const Work& work) {
  if (q.scalar_type() == torch::kBFloat16 && !prefers_fp32(q)) {
    work(cpu::select_kernels().bf16_attention);
  } else {
    cpu::with_kernels(q.scalar_type(), [&](const auto& kernels, auto) { work(kernels.attention); });
  }
}

// Computes the gradients for all key heads of all rows of the batch, or the output if there are
// none, on all threads.
template <typename T, typename Tile>
void run(const cpu::AttentionKernels<T, Tile>& kernels, const AttentionTensors& in,
         const CausalAttention& options, const AttentionGradTensors* gradients) {
  const int64_t kv_heads = in.k.size(2);
  const int64_t scratch = kernels.scratch(in.k.size(1), in.k.size(3), in.v.size(3));
  parallel_for(in.k.size(0) * kv_heads, 1, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad;  // for this thread
    const Tensor memory = at::empty({scratch}, torch::kFloat);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / kv_heads, head = i % kv_heads;
      const auto heads = make_heads<T, Tile>(in, row, head, options);
      if (gradients == nullptr) {
        kernels.forward(heads, memory.data_ptr<float>());
      } else {
        kernels.backward(heads, make_gradients<T>(*gradients, row, head), memory.data_ptr<float>());
      }
    }
    at::native::cpublas::brgemm_release();
  });
}

// Returns the options with first_keys and slopes as the kernels read them.
CausalAttention checked(CausalAttention options, const Tensor& q) {
  if (options.slopes.defined()) {
    const bool fits = options.slopes.is_cpu() && options.slopes.scalar_type() == torch::kFloat &&
                      options.slopes.numel() == q.size(2);
    ZEROTH_CHECK(fits, "slopes are not [heads] fp32 on the CPU");
    ZEROTH_CHECK(options.softcap == 0, "scores have both slopes and a softcap");
    options.slopes = options.slopes.contiguous();
  }
  Tensor& first = options.first_keys;
  if (!first.defined()) return options;
  ZEROTH_CHECK(first.is_cpu() && first.scalar_type() == torch::kLong && first.dim() == 2 &&
                   first.size(0) == q.size(0) && first.size(1) == q.size(1),
               "first_keys are not [batch, seq] int64 on the CPU");
  first = first.contiguous();
  const auto* keys = first.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < first.numel(); ++i) {
    ZEROTH_CHECK(keys[i] >= 0 && keys[i] <= i % first.size(1), "token {} sees none before {}",
                 i % first.size(1), keys[i]);
  }
  return options;
}

class Attend final : public CustomFunction {
 public:
  explicit Attend(CausalAttention options) : options_(std::move(options)) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
    const AttentionTensors in{
        with_dense_heads(q),
        with_dense_heads(k),
        with_dense_heads(v),
        at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()),
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(torch::kFloat)),
        inputs.size() > 3 ? inputs[3].to(torch::kFloat).contiguous() : Tensor()};
    with_attention(q, [&](const auto& kernels) { run(kernels, in, options_, nullptr); });
    context.save_for_backward({in.q, in.k, in.v, in.out, in.lse, in.sinks});
    return {in.out};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const AttentionTensors in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const bool has_sinks = in.sinks.defined();
    const AttentionGradTensors to{
        with_dense_heads(grads[0]), at::empty(in.q.sizes(), in.q.options()),
        at::empty(in.k.sizes(), in.k.options()), at::empty(in.v.sizes(), in.v.options()),
        has_sinks ? at::empty({in.q.size(0), in.q.size(2)}, in.sinks.options()) : Tensor()};
    with_attention(in.q, [&](const auto& kernels) { run(kernels, in, options_, &to); });
    TensorVector gradients = {to.dq, to.dk, to.dv};
    if (has_sinks) gradients.push_back(at::sum(to.dsinks, 0));  // autograd rounds it
    return gradients;
  }

 private:
  CausalAttention options_;
};

}  // namespace

bool cpu_attention_supports(const Tensor& q, const Tensor& v) {
  const auto fits = [](int64_t size) { return size % 16 == 0 && size <= 512; };
  return q.is_cpu() && cpu::has_kernels(q.scalar_type()) && fits(q.size(3)) && fits(v.size(3)) &&
         cpu_isa() >= CpuIsa::kAvx2;  // others multiply small tiles slowly
}

Tensor cpu_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                     const CausalAttention& options) {
  CausalAttention own = checked(options, q);
  TensorVector inputs = {q, k, v};
  if (own.sinks.defined()) inputs.push_back(std::exchange(own.sinks, {}));
  return apply_function(std::make_shared<Attend>(std::move(own)), inputs)[0];
}

}  // namespace zeroth::model
