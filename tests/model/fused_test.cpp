// The operators on the CPU against their formulas. ctest runs them at each CPU level.
#include "model/kernels/fused.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "model/kernels/cpu/select.h"
#include "model/kernels/fused_formula.h"
#include "tests/model/materialize.h"

namespace zeroth::model::fused_test {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kDtypes[] = {torch::kFloat32, torch::kBFloat16, torch::kHalf,
                                         torch::kFloat64};

// Rounding of a result to its dtype, and of fp32 on the way.
double tolerance(torch::ScalarType dtype) {
  if (dtype == torch::kBFloat16) return 1.6e-2;  // two units in the last place
  return dtype == torch::kHalf ? 2e-3 : 2e-6;
}

void check_close(const Tensor& actual, const Tensor& expected) {
  CHECK((actual.scalar_type() == expected.scalar_type()));
  CHECK(actual.sizes() == expected.sizes());
  const double largest = tolerance(actual.scalar_type());
  CHECK(
      at::allclose(actual.to(torch::kFloat64), expected.to(torch::kFloat64), largest, largest / 4));
}

Tensor random(at::IntArrayRef sizes, torch::ScalarType dtype) {
  return torch::randn(sizes).to(dtype);
}

// Checks that `actual` is `exact`, in fp32, as its dtype rounds it: at most half of a unit in the
// last place away, and the few roundings of fp32.
void check_rounded_once(const Tensor& actual, const Tensor& exact) {
  const double half = actual.scalar_type() == torch::kBFloat16 ? 0x1p-8
                      : actual.scalar_type() == torch::kHalf   ? 0x1p-11
                                                               : 0;
  const double smallest = actual.scalar_type() == torch::kHalf ? 0x1p-25 : 0;  // half a subnormal
  CHECK(at::allclose(actual.to(torch::kFloat), exact, half + 0x1p-20, smallest));
}

}  // namespace

TEST_CASE("RMS norm and its gradients equal the formula, for every dtype and odd sizes") {
  torch::manual_seed(11);
  for (const auto dtype : kDtypes) {
    for (const int64_t size : {7, 16, 33, 512}) {
      for (const int64_t rows : {1, 3, 600}) {
        const Tensor x = random({rows, size}, dtype), dy = random({rows, size}, dtype);
        const Tensor weight = random({size}, dtype);
        const double offset = rows == 3 ? 1 : 0;  // of the weight
        const auto [y, scale] = rms_norm(x, weight, 1e-5, offset);
        const auto [expected, expected_scale] = formula::rms_norm(x, weight, 1e-5, offset);
        check_close(y, expected);
        check_close(scale, expected_scale);
        const Tensor once = std::get<0>(rms_norm(x, weight, 1e-5, offset, true));
        check_rounded_once(
            once, x.to(torch::kFloat) * scale.unsqueeze(1) * weight.to(torch::kFloat).add(offset));
        check_close(once, std::get<0>(formula::rms_norm(x, weight, 1e-5, offset, true)));
        const auto [both_dx, both_dweight] =
            rms_norm_backward(dy, {x, weight, scale}, {}, {true, true}, offset);
        const auto [dx, dweight] =
            formula::rms_norm_backward(dy, {x, weight, scale}, std::nullopt, {true, true}, offset);
        check_close(both_dx, dx);
        CHECK(difference(both_dweight, dweight) < 1e-5);
        const auto [no_dx, only_dweight] =
            rms_norm_backward(dy, {x, weight, scale}, {}, {false, true}, offset);
        CHECK(!no_dx.defined());
        CHECK(torch::equal(only_dweight, both_dweight));
        const auto [only_dx, no_dweight] =
            rms_norm_backward(dy, {x, weight, scale}, {}, {true, false}, offset);
        CHECK(torch::equal(only_dx, both_dx));
        CHECK(!no_dweight.defined());
      }
    }
  }
}

TEST_CASE("the norm of a sum has the bits of a sum and its norm, forth and back") {
  torch::manual_seed(14);
  for (const auto dtype : kDtypes) {
    for (const int64_t size : {7, 512}) {
      const Tensor x = random({3, size}, dtype), addend = random({3, size}, dtype);
      const Tensor dy = random({3, size}, dtype), weight = random({size}, dtype);
      const auto [sum, sum_y, sum_scale] = add_rms_norm(x, addend, weight, 1e-5);
      const auto [y, scale] = rms_norm(x + addend, weight, 1e-5);
      CHECK(torch::equal(sum, x + addend));
      CHECK(torch::equal(sum_y, y));
      CHECK(torch::equal(sum_scale, scale));
      const auto [dx, dweight] = rms_norm_backward(dy, {sum, weight, scale}, {});
      const auto [summed_dx, summed_dweight] = rms_norm_backward(dy, {sum, weight, scale}, addend);
      CHECK(torch::equal(summed_dx, dx + addend));
      CHECK(torch::equal(summed_dweight, dweight));
    }
  }
}

TEST_CASE("a rotation equals the formula, forth and back, with angles per row or for all") {
  torch::manual_seed(12);
  for (const auto dtype : kDtypes) {
    for (const int64_t half : {1, 8, 19, 64}) {
      for (const int64_t angle_rows : {1, 2}) {
        const Tensor x = random({2, 5, 3, 2 * half}, dtype);
        const Tensor turns = torch::randn({angle_rows, 5, 1, half});
        const Tensor cos = turns.cos().to(dtype), sin = turns.sin().to(dtype);
        for (const double direction : {1.0, -1.0}) {
          check_close(apply_rope(x, cos, sin, direction),
                      formula::apply_rope(x, cos, sin, direction));
        }
        const Tensor strided = x.transpose(1, 2).contiguous().transpose(1, 2);
        CHECK(torch::equal(apply_rope(strided, cos, sin, 1), apply_rope(x, cos, sin, 1)));
      }
    }
  }
}

TEST_CASE("SwiGLU, GeGLU and their gradients equal the formula in fp64") {
  torch::manual_seed(13);
  const auto wide = [](const Tensor& x) { return x.to(torch::kFloat64); };
  for (const auto dtype : kDtypes) {
    for (const int64_t size : {1, 15, 16, 100, 70001}) {
      for (const double largest : {3, 30}) {
        for (const bool gelu : {false, true}) {
          CAPTURE(gelu);
          const Tensor gate = random({size}, dtype) * largest, up = random({size}, dtype);
          const Tensor dy = random({size}, dtype);
          check_close(gated_activation(gate, up, gelu),
                      formula::gated_activation(wide(gate), wide(up), gelu).to(dtype));
          const auto [dgate, dup] = gated_activation_backward(dy, gate, up, gelu);
          const auto [expected_dgate, expected_dup] =
              formula::gated_activation_backward(wide(dy), wide(gate), wide(up), gelu);
          check_close(dgate, expected_dgate.to(dtype));
          check_close(dup, expected_dup.to(dtype));
        }
      }
    }
  }
}

TEST_CASE("GeGLU and its gradients have their limits where powers of the gate overflow") {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto is_tiny = [](const Tensor& x) {
    return x.to(torch::kFloat64).abs().lt(1e-30).all().item<bool>();
  };
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kHalf}) {
    for (const double size : {11.0, 3e2, 6e4, 1e13, 1e20, 3e38, infinity}) {
      if (dtype == torch::kHalf && size > 6e4) continue;
      const Tensor ones = torch::ones({20}, torch::dtype(dtype)), gate = ones * size;
      CHECK(torch::equal(gated_activation(gate, ones, true), gate));
      CHECK(is_tiny(gated_activation(-gate, ones, true)));
      const auto [dgate, dup] = gated_activation_backward(ones, gate, ones, true);
      CHECK(torch::equal(dgate, ones));
      CHECK(torch::equal(dup, gate));
      const auto [low_dgate, low_dup] = gated_activation_backward(ones, -gate, ones, true);
      CHECK(is_tiny(low_dgate));
      CHECK(is_tiny(low_dup));
    }
  }
}

TEST_CASE("gates that are halves of one product get gradients that are halves of one tensor") {
  torch::manual_seed(16);
  for (const auto dtype : kDtypes) {
    for (const int64_t size : {1, 7, 16, 100}) {
      const bool gelu = size == 7 || size == 100;
      const Tensor both = random({2, 3, 2 * size}, dtype), dy = random({2, 3, size}, dtype);
      const Tensor gate = both.narrow(2, 0, size), up = both.narrow(2, size, size);
      check_close(gated_activation(gate, up, gelu),
                  gated_activation(gate.contiguous(), up.contiguous(), gelu));
      const auto [dgate, dup] = gated_activation_backward(dy, gate, up, gelu);
      const auto [expected_dgate, expected_dup] =
          gated_activation_backward(dy, gate.contiguous(), up.contiguous(), gelu);
      check_close(dgate, expected_dgate);
      check_close(dup, expected_dup);
      if (dtype != torch::kFloat64) CHECK(dgate.is_alias_of(dup));
      const Tensor transposed = both.transpose(0, 2).contiguous().transpose(0, 2);  // no rows
      check_close(gated_activation(transposed, transposed, gelu),
                  formula::gated_activation(both, both, gelu));
    }
  }
}

TEST_CASE("log-sum-exp and the logits' gradient equal the formula, for large logits too") {
  torch::manual_seed(14);
  for (const auto dtype : kDtypes) {
    for (const int64_t size : {1, 5, 16, 1003}) {
      const Tensor logits = random({4, size}, dtype) * 40;
      const Tensor targets = torch::randint(size, {4}, torch::kInt64);
      const Tensor lse = log_sum_exp(logits);
      check_close(lse, formula::log_sum_exp(logits));
      const Tensor scale = torch::tensor(0.125F);
      Tensor actual = logits.clone(), expected = logits.clone();
      logit_gradient_(actual, lse, targets, scale);
      formula::logit_gradient_(expected, lse, targets, scale);
      check_close(actual, expected);
    }
  }
}

TEST_CASE("masked logits take no part, and rows of logits may lie apart") {
  torch::manual_seed(16);
  for (const auto dtype : kDtypes) {
    const Tensor padded = random({4, 64}, dtype);
    Tensor logits = padded.narrow(1, 0, 50);
    logits.narrow(1, 0, 9).fill_(-std::numeric_limits<double>::infinity());
    const Tensor lse = log_sum_exp(logits);
    check_close(lse, formula::log_sum_exp(logits.narrow(1, 9, 41)));
    const Tensor targets = torch::full({4}, 11), behind = padded.narrow(1, 50, 14).clone();
    logit_gradient_(logits, lse, targets, torch::tensor(1.0F));
    CHECK(logits.narrow(1, 0, 9).count_nonzero().item<int64_t>() == 0);
    CHECK(at::allclose(logits.sum(1).to(torch::kFloat32), torch::zeros({4}), 0, 5e-2));
    CHECK(torch::equal(padded.narrow(1, 50, 14), behind));
  }
}

TEST_CASE("rows of a table take what comes to them, summed in fp32, in any order") {
  torch::manual_seed(17);
  for (const auto dtype : kDtypes) {
    const Tensor rows = torch::randint(40, {3000}, torch::kInt64), dy = random({3000, 24}, dtype);
    const Tensor table = random({50, 24}, dtype);
    Tensor actual = table.clone(), expected = table.to(torch::kFloat64).clone();
    add_rows_(actual, rows, dy);
    expected.index_add_(0, rows, dy.to(torch::kFloat64));
    // Each of the additions to a row, fewer than 150, rounds what is at most the sum of all sizes.
    const Tensor sizes =
        table.to(torch::kFloat64).abs().index_add_(0, rows, dy.abs().to(torch::kFloat64));
    const Tensor allowed = 150 * 0x1p-24 * sizes + tolerance(dtype) * expected.abs();
    CHECK(((actual.to(torch::kFloat64) - expected).abs() <= allowed).all().item<bool>());
    CHECK(torch::equal(actual.narrow(0, 40, 10), table.narrow(0, 40, 10)));
    Tensor wide = torch::zeros({50, 24});  // as an open gradient that accumulates
    add_rows_(wide, rows, dy);
    CHECK(
        at::allclose(wide, (expected - table.to(torch::kFloat64)).to(torch::kFloat32), 1e-5, 1e-4));
    Tensor nothing = table.clone();
    add_rows_(nothing, rows.narrow(0, 0, 0), dy.narrow(0, 0, 0));
    CHECK(torch::equal(nothing, table));
  }
}

TEST_CASE("what is not a number stays visible") {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kHalf}) {
    Tensor x = random({2, 40}, dtype);
    x[1][37] = std::numeric_limits<double>::quiet_NaN();
    const Tensor weight = torch::ones({40}, torch::dtype(dtype)), ones = torch::ones_like(x);
    const auto rows_with_nan = [](const Tensor& y) { return y.isnan().any(1); };
    const Tensor expected = torch::tensor({false, true});
    CHECK(torch::equal(rows_with_nan(std::get<0>(rms_norm(x, weight, 1e-5))), expected));
    for (const bool gelu : {false, true}) {
      CHECK(torch::equal(rows_with_nan(gated_activation(x, x, gelu)), expected));
      const auto [dgate, dup] = gated_activation_backward(ones, x, ones, gelu);
      CHECK(torch::equal(rows_with_nan(dgate), expected));
      CHECK(torch::equal(rows_with_nan(dup), expected));
    }
    CHECK(torch::equal(log_sum_exp(x).isnan(), expected));
    x[1][37] = std::numeric_limits<double>::infinity();
    CHECK(torch::equal(log_sum_exp(x).isfinite().logical_not(), expected));
  }
}

TEST_CASE("every fp16 number is read, and rounded to nearest even, as LibTorch does") {
  const Tensor all = torch::arange(1 << 16, torch::kInt32).to(torch::kInt16).view(torch::kHalf);
  const Tensor finite = all.masked_select(all.isfinite());
  const Tensor wide = torch::empty(finite.sizes(), torch::kFloat32);
  const cpu::DtypeKernels<Fp16>& kernels = cpu::select_kernels().fp16;
  const int64_t count = finite.size(0);
  kernels.widen({cpu::data<Fp16>(finite), count, 1, count}, cpu::data<float>(wide), count);
  CHECK(torch::equal(wide, finite.to(torch::kFloat32)));
  // Halfway to the next number, and a little to either side; beyond the largest one, infinity.
  const Tensor steps = at::cat({wide, wide * 1.00048828125F, wide * 1.0004F, wide * 1.0006F,
                                wide + 2.98e-8F, wide * 2, wide / 4096});
  const Tensor back = torch::empty(steps.sizes(), torch::kHalf);
  kernels.narrow({cpu::data<float>(steps), steps.size(0), 1, steps.size(0)}, cpu::data<Fp16>(back),
                 steps.size(0));
  CHECK(torch::equal(back, steps.to(torch::kHalf)));
}

TEST_CASE("results do not depend on the number of threads") {
  torch::manual_seed(15);
  const Tensor x = torch::randn({3000, 96}), dy = torch::randn({3000, 96});
  const Tensor weight = torch::randn({96});
  const int threads = at::get_num_threads();
  std::vector<Tensor> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    const auto [y, scale] = rms_norm(x, weight, 1e-5);
    const auto [dx, dweight] = rms_norm_backward(dy, {x, weight, scale}, {});
    results.push_back(
        at::cat({y.flatten(), dx.flatten(), dweight, gated_activation(x, dy, false).flatten(),
                 gated_activation(x, dy, true).flatten(), log_sum_exp(x)}));
  }
  at::set_num_threads(threads);
  CHECK(torch::equal(results[0], results[1]));
}

}  // namespace zeroth::model::fused_test
