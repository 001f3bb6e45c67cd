#include "optim/cpu/cpu_update.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

#include <limits>

#include "base/error.h"
#include "device/tensor.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim::cpu_update_test {
namespace {

constexpr Format kFormats[] = {Format::kFp32, Format::kBf16, Format::kFp16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Calls check(config, gradient's format, copy's format).
template <typename Check>
void for_each_kernel(const Check& check) {
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const Format grad : kFormats) {
      for (const Format copy : kFormats) {
        CAPTURE(static_cast<int>(config.kind));
        CAPTURE(static_cast<int>(grad));
        CAPTURE(static_cast<int>(copy));
        check(config, grad, copy);
      }
    }
  }
}

// One element's update in fp64, and how far fp32 may be from it: a few roundings of what was added.
struct Expected {
  double master, tolerance;
};

Expected reference(const OptimizerConfig& config, const UpdateStep& step, const double (&in)[4]) {
  const auto [p, first, second, wire] = in;
  const auto [beta1, beta2] = step.betas;
  const double update = static_cast<double>(step.update);
  const bool decoupled = config.kind == Kind::kAdamW || config.kind == Kind::kLion;
  const double g = wire * step.grad_factor + (decoupled ? 0 : step.weight_decay * p);
  const double g_size =
      std::abs(wire * step.grad_factor) + (decoupled ? 0 : std::abs(step.weight_decay * p));
  const double kept = decoupled ? p * (1 - step.lr * step.weight_decay) : p;
  double change = 0, change_size = 0;
  switch (config.kind) {
    case Kind::kAdamW:
    case Kind::kAdam: {
      const double m = beta1 * first + (1 - beta1) * g;
      const double v = beta2 * second + (1 - beta2) * g * g;
      const double rate = step.lr / (1 - std::pow(beta1, update)) /
                          (std::sqrt(v / (1 - std::pow(beta2, update))) + config.eps);
      change = rate * m;
      // Decay may cancel the gradient: then v is no better known than the cancelled parts.
      change_size = rate * (std::abs(first) + g_size) * (g == 0 ? 1 : g_size / std::abs(g));
      break;
    }
    case Kind::kLion:
      change = std::copysign(step.lr, beta1 * first + (1 - beta1) * g);
      break;
    case Kind::kAdagrad: {
      const double rate =
          step.lr / (1 + (update - 1) * config.lr_decay) / (std::sqrt(first + g * g) + config.eps);
      change = rate * g;
      change_size = rate * g_size * (g == 0 ? 1 : g_size / std::abs(g));
      break;
    }
    case Kind::kSgd: {
      const double b = config.momentum == 0 || step.update == 1
                           ? g
                           : config.momentum * first + (1 - config.dampening) * g;
      change = step.lr * (config.nesterov ? g + config.momentum * b : b);
      change_size = step.lr * 2 * (g_size + std::abs(first));
      break;
    }
    case Kind::kAdamW8bit:  // tests/optim/coded_adam_test.cpp
    case Kind::kLamb:       // tests/optim/lamb_test.cpp
      break;
  }
  return {kept - change, 0x1p-22 * (std::abs(p) + std::abs(change) + change_size) + 1e-44};
}

// What `config` without decay makes of one element whose wire gradient is `wire`.
struct Element {
  float master, first, second;
};
Element updated(const OptimizerConfig& config, CpuIsa level, float wire) {
  Element x = {1.0F, 0.5F, 0.25F};
  const CpuChunk chunk = {
      .count = 1, .master = &x.master, .states = {&x.first, &x.second}, .grad = &wire};
  CpuUpdate(config, level).apply(chunk, cpu_step(config, 2, 0, 0.5));
  return x;
}

}  // namespace

TEST_CASE("every level and every tiling of a host update gives the same bits") {
  for_each_kernel([](const OptimizerConfig& config, Format grad, Format copy) {
    for (const int64_t count : {1, 7, 8, 16, 17, 31, 33, 1000, 4099}) {
      CAPTURE(count);
      CpuArrays expected = arrays_for(config, count, grad, copy);
      std::vector<CpuArrays> others(cpu_levels().size() + 1, expected);
      for (int64_t update = 1; update <= 2; ++update) {
        const UpdateStep step = cpu_step(config, update, update == 1 ? 0 : 0.1, 0.37);
        CpuUpdate(config, CpuIsa::kBaseline).apply(expected.chunk(), step);
        for (const CpuIsa level : cpu_levels()) {
          CpuUpdate(config, level).apply(others[static_cast<size_t>(level)].chunk(), step);
        }
        for (int64_t begin = 0, end = 0; begin < count; begin = end) {
          end = std::min(count, begin * 2 + 3);
          CpuUpdate(config).apply(others.back().chunk(begin, end), step);
        }
      }
      for (const CpuArrays& other : others) CHECK(same(expected, other));
    }
  });
}

TEST_CASE("any number of threads gives the same bits of a host update, past the caches too") {
  const int threads_before = at::get_num_threads();
  constexpr int64_t kLarge = (int64_t{1} << 20) + 77;
  const OptimizerConfig config;
  const UpdateStep step = cpu_step(config, 1, 0.1, 0.5);
  for (const int64_t count : {int64_t{70001}, kLarge}) {
    CpuArrays alone(count, Format::kBf16, Format::kBf16);
    const CpuArrays start = alone;
    CpuUpdate(config, CpuIsa::kBaseline).apply(alone.chunk(), step);
    for (const int threads : {1, 2, 3, 5}) {
      at::set_num_threads(threads);
      for (const CpuIsa level : cpu_levels()) {
        CpuArrays arrays = start;
        at::Tensor aligned = at::zeros({count}, at::kBFloat16);
        CpuChunk chunk = arrays.chunk();
        chunk.copy = aligned.data_ptr();
        REQUIRE(reinterpret_cast<uintptr_t>(chunk.copy) % 64 == 0);
        CpuUpdate(config, level).apply(chunk, step);
        std::memcpy(arrays.copy.data(), chunk.copy, arrays.copy.size() * sizeof(uint16_t));
        CAPTURE(threads);
        CHECK(same(alone, arrays));
      }
    }
  }
  at::set_num_threads(threads_before);
}

TEST_CASE("a host update is the formula in fp64, rounded") {
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const double decay : {0.0, 0.1}) {
      for (const double factor : {1.0, 0.37}) {
        const UpdateStep step = cpu_step(config, 3, decay, factor);
        CpuArrays arrays = arrays_for(config, 2000, Format::kFp32, Format::kFp32);
        const CpuArrays before = arrays;
        CpuUpdate(config).apply(arrays.chunk(), step);
        int64_t wrong = 0, compared = 0;
        for (size_t i = 0; i < arrays.master.size(); ++i) {
          const double in[4] = {before.master[i], before.states[0][i], before.states[1][i],
                                before.wide_grad[i]};
          if (*std::max_element(in, in + 4) > 1e18 || *std::min_element(in, in + 4) < -1e18) {
            continue;  // squares leave the range of fp32
          }
          const Expected expected = reference(config, step, in);
          const double difference = std::abs(arrays.master[i] - expected.master);
          const bool tiny_moment = config.kind != Kind::kSgd && std::abs(in[3]) < 1e-18;
          wrong += !(difference <= expected.tolerance) && !tiny_moment;
          compared += !tiny_moment;
        }
        CHECK(compared > 1500);
        CAPTURE(static_cast<int>(config.kind));
        CAPTURE(decay);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("gradients that are not finite reach what they are summed into") {
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const CpuIsa level : cpu_levels()) {
      for (const float wire : {kInfinity, -kInfinity, kNan}) {
        const Element x = updated(config, level, wire);
        CAPTURE(static_cast<int>(config.kind));
        const bool has_state = config.kind != Kind::kSgd || config.momentum != 0;
        if (has_state) CHECK_FALSE(std::isfinite(x.first));
        if (config.kind == Kind::kLion) {  // a sign alone
          CHECK(std::abs(std::abs(x.master - 1) - config.lr) < 1e-6);
        } else {
          CHECK_FALSE(std::isfinite(x.master));
        }
      }
    }
  }
}

TEST_CASE("every 16-bit gradient is read as the number that it is") {
  const OptimizerConfig config{.kind = Kind::kSgd, .lr = 1};
  for (const CpuIsa level : cpu_levels()) {
    for (const Format format : {Format::kBf16, Format::kFp16}) {
      CpuArrays arrays(65536, format, Format::kFp32);
      for (uint32_t i = 0; i < 65536; ++i) {
        arrays.master[i] = 0;
        arrays.grad[i] = static_cast<uint16_t>(i);
      }
      CpuUpdate(config, level).apply(arrays.chunk(), cpu_step(config, 1, 0, 1));
      std::vector<float> expected;
      for (uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        const float wire = format == Format::kBf16
                               ? static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits()))
                               : static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
        expected.push_back(0 - wire);
      }
      CHECK(same(arrays.master, expected));
    }
  }
}

TEST_CASE("a copy is the master rounded to nearest even") {
  const OptimizerConfig config{.kind = Kind::kSgd, .lr = 0};
  for (const CpuIsa level : cpu_levels()) {
    for (const Format format : {Format::kBf16, Format::kFp16}) {
      constexpr uint32_t kOffsets[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x17ff, 0x1ffe, 0x1fff};
      constexpr int64_t kCount = 512 * 256;  // each sign and exponent, with ties and beside them
      CpuArrays arrays(kCount, Format::kBf16, format);
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t top = (i >> 7 & 1) != 0 ? 0x7e0000 : 0;
        arrays.master[i] =
            std::bit_cast<float>(i >> 8 << 23 | top | (i >> 3 & 15) << 13 | kOffsets[i & 7]);
        arrays.grad[i] = 0;
      }
      const std::vector<float> before = arrays.master;
      CpuUpdate(config, level).apply(arrays.chunk(), cpu_step(config, 1, 0, 1));
      CHECK(same(before, arrays.master));
      int64_t wrong = 0;
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint16_t expected =
            format == Format::kBf16 ? c10::BFloat16(before[i]).x : c10::Half(before[i]).x;
        const uint16_t nan_above = format == Format::kBf16 ? 0x7f80 : 0x7c00;
        const bool is_nan = (arrays.copy[i] & 0x7fff) > nan_above;
        wrong += std::isnan(before[i]) ? !is_nan : arrays.copy[i] != expected;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a tile or a step that would spoil the weights is refused") {
  const OptimizerConfig config;
  CpuArrays arrays(8, Format::kFp32, Format::kBf16);
  const CpuUpdate update(config);
  const UpdateStep good = cpu_step(config, 1, 0, 1);
  CHECK_THROWS_AS(update.apply(arrays.chunk(), cpu_step(config, 0, 0, 1)), InternalError);
  CHECK_THROWS_AS(update.apply(arrays.chunk(), cpu_step(config, 1, 0, kInfinity)), InternalError);
  CHECK_THROWS_AS(update.apply(arrays.chunk(), cpu_step(config, 1, 0, 0)), InternalError);
  CpuChunk chunk = arrays.chunk();
  chunk.states[1] = nullptr;
  CHECK_THROWS_AS(update.apply(chunk, good), InternalError);
  chunk = arrays.chunk();
  chunk.copy_format = Format::kFp32;
  CHECK_THROWS_AS(update.apply(chunk, good), InternalError);
  chunk = arrays.chunk();
  chunk.grad = nullptr;
  CHECK_THROWS_AS(update.apply(chunk, good), InternalError);
  update.apply({}, good);  // nothing to do
}

}  // namespace zeroth::optim::cpu_update_test
