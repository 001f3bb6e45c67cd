// The CUDA kernels of model/kernels/fused.h against its formulas, taken in fp64 on the CPU.
#include "model/kernels/fused.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "model/kernels/fused_formula.h"
#include "model/kernels/matrix_product.h"
#include "model/kernels/nf4.h"

namespace zeroth::model::fused_test {
namespace {

using torch::Tensor;

constexpr torch::Dtype kDtypes[] = {torch::kFloat32, torch::kBFloat16, torch::kHalf};

// These sizes; the first two alone under a tool that makes kernels a hundred times slower.
std::vector<int64_t> sizes(std::vector<int64_t> all) {
  if (std::getenv("ZEROTH_TEST_FEW") != nullptr) all.resize(2);
  return all;
}

// A few roundings of the dtype.
double tolerance(torch::Dtype dtype) {
  return dtype == torch::kFloat32 ? 2e-6 : dtype == torch::kHalf ? 2e-3 : 1.6e-2;
}

Tensor sample(at::IntArrayRef sizes, torch::Dtype dtype) {
  return torch::randn(sizes).to(dtype).to(torch::kCUDA);
}

Tensor exact(const Tensor& x) {
  return x.to(torch::kCPU).to(torch::kFloat64);
}

// Largest difference, in units of the larger of 1 and the expected value.
double difference(const Tensor& got, const Tensor& expected) {
  const Tensor wide = exact(expected);
  return ((exact(got) - wide).abs() / wide.abs().clamp_min(1)).max().item<double>();
}

Tensor exact_scale(const Tensor& x, double eps) {
  return exact(x).flatten(0, -2).pow(2).mean(-1).add(eps).rsqrt();
}

}  // namespace

TEST_CASE("RMSNorm on the GPU equals the formula at every width") {
  torch::manual_seed(1);
  for (const auto dtype : kDtypes) {
    for (const int64_t width :
         sizes({64, 2048, 8, 100, 128, 1000, 1024, 4096, 8192, 16384, 24576})) {
      CAPTURE(width);
      const Tensor x = sample({3, 5, width}, dtype), weight = sample({width}, dtype);
      const auto [y, scale] = rms_norm(x, weight, 1e-5);
      CHECK((y.scalar_type() == dtype));
      CHECK(difference(scale, exact_scale(x, 1e-5)) < 1e-5);
      const Tensor expected = exact(x) * exact_scale(x, 1e-5).view({3, 5, 1}) * exact(weight);
      CHECK(difference(y, expected) < tolerance(dtype));
    }
  }
}

TEST_CASE("the gradients of RMSNorm on the GPU equal the formula at every width") {
  torch::manual_seed(2);
  for (const auto dtype : kDtypes) {
    for (const int64_t width : sizes({128, 2048, 8, 100, 1024, 8192, 16384, 24576})) {
      for (const int64_t rows : sizes({1, 7, 3000})) {
        CAPTURE(width);
        CAPTURE(rows);
        if (rows * width > 30'000'000) continue;
        const Tensor x = sample({rows, width}, dtype), weight = sample({width}, dtype);
        const Tensor dy = sample({rows, width}, dtype);
        const Tensor scale = std::get<1>(rms_norm(x, weight, 1e-5));
        const auto [dx, dweight] = rms_norm_backward(dy, {x, weight, scale}, {});
        const Tensor wide_x = exact(x).requires_grad_(), wide = exact(weight).requires_grad_();
        (wide_x * wide_x.pow(2).mean(-1, true).add(1e-5).rsqrt() * wide).backward(exact(dy));
        CHECK(difference(dx, wide_x.grad()) < tolerance(dtype));
        const double growth = std::sqrt(static_cast<double>(rows));
        CHECK(difference(dweight, wide.grad()) < 1e-5 * growth);

        const auto [no_dx, only_dweight] =
            rms_norm_backward(dy, {x, weight, scale}, {}, {false, true});
        CHECK_FALSE(no_dx.defined());
        CHECK(torch::equal(only_dweight, dweight));
        const auto [only_dx, no_dweight] =
            rms_norm_backward(dy, {x, weight, scale}, {}, {true, false});
        CHECK_FALSE(no_dweight.defined());
        CHECK(torch::equal(only_dx, dx));
      }
    }
  }
}

TEST_CASE("rotation on the GPU equals the formula and turns back") {
  torch::manual_seed(3);
  for (const auto dtype : kDtypes) {
    for (const int64_t half : sizes({3, 32, 8, 64})) {
      for (const int64_t tables : {1, 2}) {
        CAPTURE(half);
        const Tensor x = sample({2, 7, 3, 2 * half}, dtype);
        const Tensor angle = torch::randn({tables, 7, 1, half});
        const Tensor cos = angle.cos().to(dtype).to(torch::kCUDA);
        const Tensor sin = angle.sin().to(dtype).to(torch::kCUDA);
        const Tensor y = apply_rope(x, cos, sin, 1);
        CHECK(difference(y, formula::apply_rope(exact(x), exact(cos), exact(sin), 1)) <
              tolerance(dtype));
        CHECK(difference(apply_rope(y, cos, sin, -1), x) < 3 * tolerance(dtype));
        const Tensor slice = sample({2, 7, 5, 2 * half}, dtype).narrow(2, 1, 3);
        CHECK(torch::equal(apply_rope(slice, cos, sin, 1),
                           apply_rope(slice.contiguous(), cos, sin, 1)));
      }
    }
  }
}

TEST_CASE("SwiGLU and GeGLU on the GPU and their gradients equal the formula") {
  torch::manual_seed(4);
  for (const auto dtype : kDtypes) {
    for (const int64_t width : sizes({5, 64, 5632})) {
      CAPTURE(width);
      const Tensor gate = sample({3, 7, width}, dtype).mul_(4), up = sample({3, 7, width}, dtype);
      const Tensor dy = sample({3, 7, width}, dtype);
      for (const bool gelu : {false, true}) {
        CAPTURE(gelu);
        CHECK(difference(gated_activation(gate, up, gelu),
                         formula::gated_activation(exact(gate), exact(up), gelu)) <
              tolerance(dtype));
        const auto [dgate, dup] = gated_activation_backward(dy, gate, up, gelu);
        const auto [want_dgate, want_dup] =
            formula::gated_activation_backward(exact(dy), exact(gate), exact(up), gelu);
        CHECK(difference(dgate, want_dgate) < tolerance(dtype));
        CHECK(difference(dup, want_dup) < tolerance(dtype));
      }
    }
  }
}

TEST_CASE("the head's log-sum-exp and logit gradient on the GPU equal the formula") {
  torch::manual_seed(5);
  for (const auto dtype : kDtypes) {
    for (const int64_t vocab : sizes({509, 512, 5, 32000, 50257})) {
      CAPTURE(vocab);
      const Tensor logits = sample({9, vocab}, dtype).mul_(6);
      const Tensor targets = torch::randint(vocab, {9}, torch::kInt64).to(torch::kCUDA);
      const Tensor scale = torch::full({}, 0.125f, torch::kCUDA);
      const Tensor lse = log_sum_exp(logits);
      CHECK(difference(lse, at::logsumexp(exact(logits), {1})) < 1e-6);

      const Tensor share = at::softmax(exact(logits), 1);
      const Tensor one = torch::zeros({9, vocab}, torch::kFloat64)
                             .scatter_(1, targets.to(torch::kCPU).unsqueeze(1), 1.0);
      Tensor gradient = logits.clone();
      logit_gradient_(gradient, lse, targets, scale);
      CHECK(difference(gradient, (share - one) * 0.125) < tolerance(dtype) / 8);
    }
  }
}

TEST_CASE("the head's kernels take rows that lie apart, and masked logits that come first") {
  torch::manual_seed(6);
  for (const auto dtype : kDtypes) {
    for (const int64_t padded : sizes({64, 67, 2048})) {
      const int64_t vocab = padded - 3, masked = vocab / 4;
      const Tensor all = sample({9, padded}, dtype).mul_(6);
      Tensor logits = all.narrow(1, 0, vocab);
      logits.narrow(1, 0, masked).fill_(-std::numeric_limits<double>::infinity());
      const Tensor wide = exact(logits), behind = all.narrow(1, vocab, 3).clone();
      const Tensor lse = log_sum_exp(logits);
      CHECK(difference(lse, at::logsumexp(wide, {1})) < 1e-6);
      const Tensor targets = torch::full({9}, vocab - 1, torch::kInt64).to(torch::kCUDA);
      logit_gradient_(logits, lse, targets, torch::ones({}, torch::kCUDA));
      Tensor expected = at::softmax(wide, 1);
      expected.select(1, vocab - 1).sub_(1);
      CHECK(difference(logits, expected) < tolerance(dtype));
      CHECK(torch::equal(all.narrow(1, vocab, 3), behind));
    }
  }
}

TEST_CASE("rows of a table take what comes to them on the GPU, summed in fp32, in one order") {
  torch::manual_seed(7);
  for (const auto dtype : kDtypes) {
    for (const int64_t count : sizes({33, 700, 1, 32, 9000})) {
      for (const int64_t rows : {1, 3, 500}) {  // some over many pieces
        const Tensor at = torch::randint(rows, {count}, torch::kInt64).to(torch::kCUDA);
        const Tensor dy = sample({count, 200}, dtype), table = sample({rows + 1, 200}, dtype);
        const Tensor sum = torch::zeros({rows + 1, 200}, torch::kFloat64)
                               .index_add_(0, at.to(torch::kCPU), exact(dy));
        const double growth = std::sqrt(static_cast<double>(count));
        Tensor got = table.clone(), again = table.clone();
        add_rows_(got, at, dy);
        add_rows_(again, at, dy);
        CHECK(difference(got, exact(table) + sum) < tolerance(dtype) + 1e-6 * growth);
        CHECK(torch::equal(got, again));
        CHECK(torch::equal(got[rows], table[rows]));
        Tensor wide = torch::zeros({rows + 1, 200}, torch::kCUDA);
        add_rows_(wide, at, dy);
        CHECK(difference(wide, sum) < 1e-6 * growth);
      }
    }
  }
}

TEST_CASE("weights in NF4 are dequantized on the GPU with the bits of the CPU") {
  torch::manual_seed(8);
  for (const int64_t in : {64, 1024, 100}) {
    constexpr int64_t kOut = 40;
    const int64_t numel = kOut * in, blocks = nf4_blocks(numel);
    const Tensor codes = torch::empty({(numel + 1) / 2}, torch::kByte);
    const Tensor absmax = torch::empty({blocks});
    quantize_nf4(torch::randn({numel}), codes, absmax);
    const NestedAbsmax nested = quantize_absmax(absmax);
    const auto bytes = [](const Tensor& values) { return values.contiguous().view(torch::kByte); };
    for (const Nf4Scales& scales :
         {Nf4Scales{bytes(absmax)},
          Nf4Scales{nested.codes, bytes(nested.nested), {0, blocks, blocks}}}) {
      for (const auto dtype : kDtypes) {
        const Tensor expected = torch::empty({kOut, in}, dtype);
        dequantize_nf4(codes, scales, expected);
        const auto on_gpu = [](const Tensor& values) {
          return values.defined() ? values.to(torch::kCUDA) : values;
        };
        const Tensor out = torch::empty({kOut, in}, torch::dtype(dtype).device(torch::kCUDA));
        dequantize_nf4(on_gpu(codes),
                       {on_gpu(scales.absmax), on_gpu(scales.nested_absmax), scales.place}, out);
        CHECK(torch::equal(out.cpu(), expected));
      }
    }
  }
}

TEST_CASE("the measured matrix peak of the GPU is that of a large product") {
  const double peak = measure_matrix_peak(torch::kBFloat16, torch::Device(torch::kCUDA, 0));
  const Tensor a = sample({8192, 8192}, torch::kBFloat16);
  at::mm(a, a);
  at::mm(a, a)[0][0].item<float>();
  const auto start = std::chrono::steady_clock::now();
  Tensor last;
  for (int i = 0; i < 10; ++i) last = at::mm(a, a);
  last[0][0].item<float>();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double rate = 10 * 2.0 * 8192 * 8192 * 8192 / elapsed.count();
  CHECK(peak > 0.8 * rate);
  CHECK(peak < 1.25 * rate);
}

}  // namespace zeroth::model::fused_test
