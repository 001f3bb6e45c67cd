// Masters and moments that rest in bf16.
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <limits>

#include "base/error.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim::cpu_rounding_test {
namespace {

float widened(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t cut(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}

// Masters and states of one number each, and a gradient; states may be fp32.
struct Bf16Arrays {
  OptimizerConfig config;
  std::vector<uint16_t> master;
  std::vector<uint16_t> states[2];
  std::vector<float> wide_states[2];
  std::vector<float> grad;
  int64_t first_element = 0;
  std::vector<OffsetSpan> offsets;

  Bf16Arrays(OptimizerConfig optimizer, size_t count, bool states_too = true)
      : config(optimizer), master(count, cut(1)), grad(count) {
    config.bf16_masters = true;
    config.bf16_states = states_too;
    for (int i = 0; i < 2; ++i) {
      states[i].resize(count);
      wide_states[i].resize(count);
    }
  }

  void* state(int i, int64_t begin) {
    return config.bf16_states ? static_cast<void*>(states[i].data() + begin)
                              : wide_states[i].data() + begin;
  }
  CpuChunk chunk(int64_t begin, int64_t end) {
    return {.count = end - begin,
            .master = master.data() + begin,
            .states = {state(0, begin), state(1, begin)},
            .grad = grad.data() + begin,
            .first_element = first_element + begin,
            .offsets = offsets};
  }
  void apply(const UpdateStep& step, CpuIsa level = cpu_isa()) {
    CpuUpdate(config, level).apply(chunk(0, static_cast<int64_t>(master.size())), step);
  }

  bool operator==(const Bf16Arrays& other) const {
    return master == other.master && states[0] == other.states[0] && states[1] == other.states[1] &&
           same(wide_states[0], other.wide_states[0]) && same(wide_states[1], other.wide_states[1]);
  }
};

// With numbers of many sizes, without those of which a level may make a NaN of its own.
Bf16Arrays filled(const OptimizerConfig& config, size_t count, bool states_too) {
  Bf16Arrays arrays(config, count, states_too);
  for (uint64_t i = 0; i < count; ++i) {
    const auto moderate = [](float x) { return std::abs(x) > 1e15F ? 1.5F : x; };
    arrays.master[i] = cut(moderate(number(i)));
    arrays.grad[i] = moderate(number(i + 7 * count));
    for (int k = 0; k < 2; ++k) {
      arrays.wide_states[k][i] = std::abs(moderate(number(i + 3 * count * static_cast<size_t>(k))));
      arrays.states[k][i] = cut(arrays.wide_states[k][i]);
    }
  }
  return arrays;
}

// Plain SGD of masters 1: each becomes 1 + added, rounded.
UpdateStep adding_step(uint64_t seed = 0, int64_t update = 1) {
  return {.update = update, .lr = -1, .weight_decay = 0, .rounding_seed = seed};
}

double mean(const std::vector<uint16_t>& values) {
  double sum = 0;
  for (const uint16_t value : values) sum += widened(value);
  return sum / static_cast<double>(values.size());
}

constexpr double kSpacing = 0x1p-7;  // of bf16 numbers from 1 on
constexpr OptimizerConfig kSgd = {.kind = Kind::kSgd};

}  // namespace

TEST_CASE("every level and every tiling rounds bf16 masters and states to the same bits") {
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const bool states_too : {false, true}) {
      for (const size_t count : {1, 15, 16, 1000, 4099}) {
        Bf16Arrays expected = filled(config, count, states_too);
        // Within a range the lower half of the elements' numbers wraps around.
        expected.first_element = (int64_t{3} << 32) - 700;
        const Bf16Arrays start = expected;
        const UpdateStep step = cpu_step(config, 2, 0.1, 0.37);
        expected.apply(step, CpuIsa::kBaseline);
        CHECK(!(expected == start));
        for (const CpuIsa level : cpu_levels()) {
          Bf16Arrays whole = start, tiled = start;
          whole.apply(step, level);
          for (int64_t begin = 0, end = 0; begin < static_cast<int64_t>(count); begin = end) {
            end = std::min(static_cast<int64_t>(count), begin * 2 + 3);
            CpuUpdate(tiled.config, level).apply(tiled.chunk(begin, end), step);
          }
          CAPTURE(static_cast<int>(config.kind));
          CAPTURE(static_cast<int>(level));
          CAPTURE(count);
          CHECK(whole == expected);
          CHECK(tiled == expected);
        }
      }
    }
  }
}

TEST_CASE("columns of a matrix are rounded as in the whole one, at every level and every tiling") {
  constexpr int64_t kRows = 40, kBefore = (int64_t{5} << 32) - 777;
  for (const OptimizerConfig& config : cpu_rules()) {
    // Some rows are whole vectors, some shorter than one.
    for (const int64_t length : {1, 5, 32, 43, 100}) {
      const int64_t columns = 3 * length + 1, before = length + 1, count = kRows * length;
      Bf16Arrays whole = filled(config, static_cast<size_t>(kRows * columns), true);
      Bf16Arrays start(config, static_cast<size_t>(count));
      const auto column_of = [&](auto& part, const auto& all) {
        for (int64_t row = 0; row < kRows; ++row) {
          std::copy_n(all.begin() + row * columns + before, length, part.begin() + row * length);
        }
      };
      const auto take_columns = [&](Bf16Arrays& part) {
        column_of(part.master, whole.master);
        column_of(part.grad, whole.grad);
        for (int k = 0; k < 2; ++k) column_of(part.states[k], whole.states[k]);
      };
      take_columns(start);
      start.offsets = {
          {0,
           {.first = kBefore + before, .left = length, .length = length, .gap = 2 * length + 1}}};
      whole.first_element = kBefore;
      const UpdateStep step = cpu_step(config, 2, 0.1, 0.37);
      whole.apply(step);
      Bf16Arrays expected = start;
      take_columns(expected);
      for (const CpuIsa level : cpu_levels()) {
        Bf16Arrays at_once = start, tiled = start;
        at_once.apply(step, level);
        for (int64_t begin = 0, end = 0; begin < count; begin = end) {
          end = std::min(count, begin * 2 + 3);
          CpuUpdate(tiled.config, level).apply(tiled.chunk(begin, end), step);
        }
        CAPTURE(static_cast<int>(config.kind));
        CAPTURE(static_cast<int>(level));
        CAPTURE(length);
        CHECK(at_once == expected);
        CHECK(tiled == expected);
      }
      // It is their place that rounds them.
      Bf16Arrays elsewhere = start;
      elsewhere.offsets.clear();
      elsewhere.apply(step);
      if (length > 5) CHECK(!(elsewhere == expected));
    }
  }
}

TEST_CASE("any number of threads rounds to the same bits") {
  const int threads_before = at::get_num_threads();
  const Bf16Arrays start = filled({}, 100'003, true);
  Bf16Arrays alone = start;
  at::set_num_threads(1);
  alone.apply(cpu_step({}, 1, 0.1, 1));
  for (const int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    Bf16Arrays together = start;
    together.apply(cpu_step({}, 1, 0.1, 1));
    CHECK(together == alone);
  }
  at::set_num_threads(threads_before);
}

TEST_CASE("rounding to bf16 keeps the mean, whatever lies between two numbers") {
  constexpr size_t kCount = size_t{1} << 20;
  for (const double share : {1.0 / 1024, 0.25, 0.5, 0.9}) {
    for (const double sign : {1.0, -1.0}) {
      Bf16Arrays arrays(kSgd, kCount);
      std::fill(arrays.master.begin(), arrays.master.end(), cut(static_cast<float>(sign)));
      std::fill(arrays.grad.begin(), arrays.grad.end(),
                static_cast<float>(sign * share * kSpacing));
      arrays.apply(adding_step());
      // Five deviations of the mean of kCount draws of which `share` go up.
      const double bound = 5 * std::sqrt(share * (1 - share) / kCount) * kSpacing;
      CAPTURE(share);
      CHECK(std::abs(mean(arrays.master) - sign * (1 + share * kSpacing)) < bound);
    }
  }
}

TEST_CASE("roundings of neighbours, of updates and of arrays know nothing of each other") {
  constexpr size_t kCount = size_t{1} << 18;
  const auto ups = [](uint64_t seed, int64_t update, int64_t first_element) {
    Bf16Arrays arrays({.kind = Kind::kSgd, .momentum = 1, .dampening = 0}, kCount);
    arrays.first_element = first_element;
    std::fill(arrays.grad.begin(), arrays.grad.end(), static_cast<float>(kSpacing / 2));
    std::fill(arrays.states[0].begin(), arrays.states[0].end(), cut(1));
    UpdateStep step = adding_step(seed, update);
    arrays.apply(step);
    // The state is 1 + half a spacing, the master 2 + half a spacing, whose spacing is twice that.
    std::array<std::vector<bool>, 2> up;
    for (size_t i = 0; i < kCount; ++i) {
      up[0].push_back(arrays.states[0][i] != cut(1));
      up[1].push_back(arrays.master[i] != cut(2));
    }
    return up;
  };
  const auto [state, master] = ups(1, 2, 0);
  const auto both = [&](const std::vector<bool>& other, size_t shift) {
    double count = 0;
    for (size_t i = 0; i + shift < kCount; ++i) count += state[i + shift] && other[i];
    return count / static_cast<double>(kCount);
  };
  const double bound = 5 * std::sqrt(0.25 / kCount);
  CHECK(std::abs(both(state, 0) - 0.5) < bound);
  for (const size_t shift : {1, 2, 16, 1024, 65536}) {
    CHECK(std::abs(both(state, shift) * kCount / (kCount - shift) - 0.25) < 2 * bound);
  }
  CHECK(std::abs(both(master, 0) - 0.125) < bound);
  for (const auto& other : {ups(2, 2, 0), ups(1, 3, 0), ups(1, 2, int64_t{1} << 32)}) {
    CHECK(std::abs(both(other[0], 0) - 0.25) < bound);
  }
  // An element keeps its rounding wherever the range begins.
  const auto moved = ups(1, 2, 1000)[0];
  CHECK(std::equal(state.begin() + 1000, state.end(), moved.begin()));
}

TEST_CASE("what bf16 holds exactly is not rounded, infinities are kept and a NaN stays one") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const CpuIsa level : cpu_levels()) {
    Bf16Arrays arrays(kSgd, 65536);
    for (size_t i = 0; i < 65536; ++i) arrays.master[i] = static_cast<uint16_t>(i);
    arrays.apply({.lr = 0}, level);
    int64_t changed = 0;
    for (size_t i = 0; i < 65536; ++i) {
      const float before = widened(static_cast<uint16_t>(i)), after = widened(arrays.master[i]);
      changed += std::isnan(before) ? !std::isnan(after) : before != after;
    }
    CHECK(changed == 0);
    std::fill(arrays.master.begin(), arrays.master.end(), cut(1));
    std::fill(arrays.grad.begin(), arrays.grad.end(), kInfinity);
    arrays.apply(adding_step(), level);
    CHECK(std::all_of(arrays.master.begin(), arrays.master.end(),
                      [](uint16_t x) { return widened(x) == kInfinity; }));
  }
}

TEST_CASE("a thousand updates below bf16's spacing move a master by their sum") {
  constexpr size_t kCount = 4096;
  constexpr float kChange = 1e-4F;  // a fortieth of half the spacing: nearest rounding stays at 1
  CHECK(cut(1 + kChange) == cut(1));
  Bf16Arrays arrays(kSgd, kCount);
  std::fill(arrays.grad.begin(), arrays.grad.end(), kChange);
  for (int64_t update = 1; update <= 1000; ++update) arrays.apply(adding_step(0, update));
  // Each update has a variance below spacing * change.
  const double bound = 5 * std::sqrt(1000 * kSpacing * kChange / kCount);
  CHECK(bound < 0.01);
  CHECK(std::abs(mean(arrays.master) - 1.1) < bound);
}

TEST_CASE("Adam with masters and moments in bf16 goes down a quadratic as far as in fp32") {
  constexpr size_t kCount = 4096;
  const auto target = [](size_t i) { return std::sin(static_cast<double>(i)); };
  const OptimizerConfig config{.kind = Kind::kAdamW};
  const auto loss = [&](const auto& weight) {
    double sum = 0;
    for (size_t i = 0; i < kCount; ++i) sum += std::pow(weight(i) - target(i), 2);
    return sum / kCount;
  };
  Bf16Arrays narrow(config, kCount);
  CpuArrays wide(kCount, Format::kFp32, Format::kFp32);
  std::fill(wide.master.begin(), wide.master.end(), 1.0F);
  for (std::vector<float>& state : wide.states) std::fill(state.begin(), state.end(), 0.0F);
  for (int64_t update = 1; update <= 500; ++update) {
    UpdateStep step = cpu_step(config, update, 0, 1);
    step.lr = 0.01;
    for (size_t i = 0; i < kCount; ++i) {
      narrow.grad[i] = static_cast<float>(widened(narrow.master[i]) - target(i));
      wide.wide_grad[i] = static_cast<float>(wide.master[i] - target(i));
    }
    narrow.apply(step);
    CpuUpdate(config).apply(wide.chunk(), step);
  }
  const double of_narrow = loss([&](size_t i) { return widened(narrow.master[i]); });
  const double of_wide = loss([&](size_t i) { return wide.master[i]; });
  CHECK(of_wide < 1e-3);
  CHECK(of_narrow < of_wide + 1e-4);  // bf16 itself: (2^-9)^2 at numbers near 1
}

TEST_CASE("what cannot rest in bf16 is refused") {
  CHECK_THROWS_AS(CpuUpdate({.bf16_states = true}), InternalError);
  Bf16Arrays arrays(kSgd, 8);
  const CpuUpdate update(arrays.config);
  CpuChunk chunk = arrays.chunk(0, 8);
  chunk.grad_format = Format::kFp16;
  CHECK_THROWS_AS(update.apply(chunk, adding_step()), InternalError);
  chunk = arrays.chunk(0, 8);
  chunk.copy = arrays.states[0].data();
  CHECK_THROWS_AS(update.apply(chunk, adding_step()), InternalError);
  chunk = arrays.chunk(0, 8);
  chunk.first_element = -1;
  CHECK_THROWS_AS(update.apply(chunk, adding_step()), InternalError);
}

}  // namespace zeroth::optim::cpu_rounding_test
