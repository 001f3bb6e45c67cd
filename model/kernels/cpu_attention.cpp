#include "model/kernels/attention_kernels.h"

#include <ATen/native/CPUBlas.h>

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
};

// Returns the heads from `head` on in a row of the batch, x [batch, seq, heads, dim].
template <typename T>
cpu::HeadArray<T> heads_from(const Tensor& x, int64_t row, int64_t head) {
  return {data<T>(x) + row * x.size(1) * x.stride(1) + head * x.size(3), x.stride(1)};
}

template <typename T, typename Tile>
cpu::AttentionHeads<T, Tile> make_heads(const AttentionTensors& in, int64_t row, int64_t kv_head,
                                        const CausalAttention& options) {
  const int64_t seq = in.q.size(1), group = in.q.size(2) / in.k.size(2);
  return {.q = heads_from<const T>(in.q, row, kv_head * group),
          .k = heads_from<const T>(in.k, row, kv_head),
          .v = heads_from<const T>(in.v, row, kv_head),
          .out = heads_from<T>(in.out, row, kv_head * group),
          .lse = data<float>(in.lse) + (row * in.k.size(2) + kv_head) * group * seq,
          .seq = seq,
          .group = group,
          .dim = in.q.size(3),
          .window = options.window,
          .scale = static_cast<float>(options.scale),
          .multiply = multiply};
}

struct AttentionGradTensors {
  Tensor dy, dq, dk, dv;
};

template <typename T>
cpu::AttentionGradients<T> make_gradients(const AttentionGradTensors& to, int64_t row,
                                          int64_t kv_head) {
  const int64_t first = kv_head * (to.dq.size(2) / to.dk.size(2));
  return {.dout = heads_from<const T>(to.dy, row, first),
          .dq = heads_from<T>(to.dq, row, first),
          .dk = heads_from<T>(to.dk, row, kv_head),
          .dv = heads_from<T>(to.dv, row, kv_head)};
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
  const int64_t scratch = kernels.scratch(in.k.size(1), in.k.size(3));
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

class Attend final : public CustomFunction {
 public:
  explicit Attend(const CausalAttention& options) : options_(options) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
    const AttentionTensors in{
        with_dense_heads(q), with_dense_heads(k), with_dense_heads(v),
        at::empty(q.sizes(), q.options()),
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(torch::kFloat))};
    with_attention(q, [&](const auto& kernels) { run(kernels, in, options_, nullptr); });
    context.save_for_backward({in.q, in.k, in.v, in.out, in.lse});
    return {in.out};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const AttentionTensors in{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const AttentionGradTensors to{
        with_dense_heads(grads[0]), at::empty(in.q.sizes(), in.q.options()),
        at::empty(in.k.sizes(), in.k.options()), at::empty(in.v.sizes(), in.v.options())};
    with_attention(in.q, [&](const auto& kernels) { run(kernels, in, options_, &to); });
    return {to.dq, to.dk, to.dv};
  }

 private:
  CausalAttention options_;
};

}  // namespace

bool cpu_attention_supports(const Tensor& q) {
  return q.is_cpu() && cpu::has_kernels(q.scalar_type()) && q.size(3) % 16 == 0 &&
         q.size(3) <= 256 && cpu_isa() >= CpuIsa::kAvx2;  // others multiply small tiles slowly
}

Tensor cpu_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                     const CausalAttention& options) {
  return apply_function(std::make_shared<Attend>(options), {q, k, v})[0];
}

}  // namespace zeroth::model
