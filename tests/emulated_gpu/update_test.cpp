// The kernel of the update beside the optimizers' formulas, and the rounding of what rests in bf16
// beside its definition.
#include "optim/gpu/kernels.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::update_test {
namespace {

using namespace optim::kernel;

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kOfBlock = 1024;
constexpr size_t kStates[] = {2, 1, 1, 0, 1};  // of a formula
static_assert(std::size(kStates) == kNumFormulas);

// A number, and how far fp32 may be from it.
struct About {
  double value, slack;
};

// p, then the states, after the update.
struct After {
  About of[3];
};

double step_of(double x) {
  return std::abs(x) * kFloatStep;
}

// Of g * g and what is added to it.
About squares(const About& g, double other, double sum) {
  return {sum, 6 * step_of(sum) + 3 * step_of(other) + (2 * std::abs(g.value) + g.slack) * g.slack};
}

// What dividing by its root is off by, relatively.
double root_slack(const About& sum) {
  return sum.slack / std::max(sum.value, 0x1p-126) + 8 * kFloatStep;
}

After after_adam(const Constants& c, const About& g, double p, double m, double v) {
  const double old = v * c.keep_second;
  const About second = squares(g, old, c.add_second * g.value * g.value + old);
  const double divisor = std::sqrt(second.value) / c.root_divisor + c.eps;
  const About moment = {c.add_first * (g.value - m) + (c.from_gradient ? g.value : m),
                        6 * (step_of(g.value) + step_of(m)) + 2 * g.slack};
  const double rate = c.minus_rate / divisor, kept = p * c.keep;
  const double slack =
      std::abs(rate) * (moment.slack + std::abs(moment.value) * root_slack(second));
  return {{{kept + rate * moment.value, slack + 4 * step_of(kept)}, moment, second}};
}

After after_lion(const Constants& c, double wire, double p, double m) {
  const double a = wire * c.add_first, b = m * c.keep_first, kept = p * c.keep;
  const double unsure = 4 * (step_of(a) + step_of(b));  // of the sign
  const double other = std::abs(a + b) <= unsure ? 2 * c.magnitude : 0;
  const double step =
      std::isnan(a + b) ? double{c.magnitude} : std::copysign(double{c.magnitude}, a + b);
  const double first = wire * c.add_second, second = m * c.keep_second;
  return {{{kept - step, 4 * (step_of(kept) + step_of(c.magnitude)) + other},
           {first + second, 4 * (step_of(first) + step_of(second))},
           {}}};
}

After after_adagrad(const Constants& c, const About& g, double p, double old) {
  const About sum = squares(g, old, g.value * g.value + old);
  const double rate = c.minus_rate / (std::sqrt(sum.value) + c.eps), step = rate * g.value;
  const double slack = std::abs(rate) * g.slack + std::abs(step) * root_slack(sum);
  return {{{p + step, slack + 4 * step_of(step) + 3 * step_of(p)}, sum, {}}};
}

After after_sgd(const Constants& c, const About& g, double p) {
  const double step = g.value * c.minus_rate;
  return {
      {{p + step, std::abs(c.minus_rate) * g.slack + 8 * step_of(step) + 3 * step_of(p)}, {}, {}}};
}

After after_momentum(const Constants& c, const About& g, double p, double buffer) {
  const double a = g.value * c.add_first, b = buffer * c.keep_first;
  const About moment = {c.from_gradient ? g.value : a + b,
                        6 * (step_of(a) + step_of(b) + step_of(g.value)) + g.slack};
  const double direction = c.nesterov ? moment.value * c.keep_first + g.value : moment.value;
  const double slack = moment.slack + g.slack + 4 * (step_of(moment.value) + step_of(g.value));
  return {{{p + direction * c.minus_rate, slack * std::abs(c.minus_rate) + 3 * step_of(p)},
           moment,
           {}}};
}

After after(Formula formula, const Constants& c, double wire, double p, const double (&s)[2]) {
  if (formula == kLion) return after_lion(c, wire, p, s[0]);
  const double scaled = wire * c.factor / c.divisor, decay = p * c.decay;
  const About g = {c.decay == 0 ? scaled : scaled + decay, 4 * (step_of(scaled) + step_of(decay))};
  switch (formula) {
    case kAdam:
      return after_adam(c, g, p, s[0], s[1]);
    case kAdagrad:
      return after_adagrad(c, g, p, s[0]);
    case kSgd:
      return after_sgd(c, g, p);
    case kSgdMomentum:
      return after_momentum(c, g, p, s[0]);
    default:
      throw std::logic_error("a formula without an expected result");
  }
}

// The 16 bits by which element `number` of an array is rounded: update_formulas.h says whose hash.
uint32_t rounding_bits(RoundingKey key, uint32_t number) {
  uint64_t x = number ^ key.first;
  x = ((x ^ (x >> 16)) * 0x7feb352d % (uint64_t{1} << 32)) ^ key.second;
  x = (x ^ (x >> 15)) * 0x846ca68b % (uint64_t{1} << 32);
  return static_cast<uint32_t>(x >> 16);
}

uint16_t stochastic(double x, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return static_cast<uint16_t>((uint64_t{bits} + random) >> 16);
}

uint32_t number_of(const ElementOffsets& offsets, int64_t i) {
  int64_t gaps = 0;
  if (i >= offsets.left) gaps = 1 + (i - offsets.left) / offsets.length;
  return static_cast<uint32_t>(static_cast<uint64_t>(offsets.first + i) +
                               static_cast<uint64_t>(gaps) * static_cast<uint64_t>(offsets.gap));
}

template <typename T>
void expect_kept(Shape& shape, const char* what, int64_t i, T got, const About& about,
                 uint32_t random) {
  if constexpr (std::is_same_v<T, float>) {
    shape.expect(what, i, got, about.value, about.slack);
  } else {
    if (std::isnan(about.value) && got.bits == 0x7fc0) return;
    if (std::isinf(about.value) && wide(got) == about.value) return;
    const double slack = about.slack + 0x1p-140;
    const double one = wide(T{stochastic(about.value - slack, random)});
    const double other = wide(T{stochastic(about.value + slack, random)});
    const double value = wide(got);
    if (value >= std::min(one, other) && value <= std::max(one, other)) return;
    shape.fail(what, i, value, about.value, about.slack);
  }
}

Constants drawn_constants(Shape& shape, Formula formula) {
  Constants c;
  const auto fraction = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * shape.uniform());
  };
  if (shape.one_in(2)) (shape.one_in(2) ? c.factor : c.divisor) = fraction(0.25, 8);
  c.decay = shape.one_in(3) && formula != kLion ? fraction(0.01, 0.1) : 0;
  c.keep = shape.one_in(2) ? 1 : fraction(0.9, 1);
  c.magnitude = fraction(1e-3, 0.1);
  c.minus_rate = -c.magnitude;
  c.keep_first = fraction(0.8, 0.99);
  c.add_first = 1 - c.keep_first;
  c.keep_second = fraction(0.9, 0.999);
  c.add_second = 1 - c.keep_second;
  c.root_divisor = fraction(0.05, 1);
  c.eps = 1e-8F;
  c.nesterov = shape.one_in(2);
  c.from_gradient = shape.one_in(4);
  if (formula == kAdam && c.from_gradient) c.add_first -= 1;
  return c;
}

// Ranges of elements that some blocks take.
using Range = std::pair<int64_t, int64_t>;

template <typename Master, typename State>
class Update {
 public:
  Update(Shape& shape, Formula formula) : shape_(shape), formula_(formula) {
    count_ = shape.is_far()     ? kFar + shape.from_to(1, 4 * kOfBlock)
             : shape.one_in(20) ? shape.from_to(kOfBlock, 5 * kOfBlock)
                                : shape.from_to(1, 700);
    shape.text = std::to_string(count_) + " elements";
    ranges_ = {{0, count_}};
    if (shape.is_far()) {
      ranges_.clear();
      for (const int64_t block : {kFar / kOfBlock - 1, kFar / kOfBlock, (count_ - 1) / kOfBlock}) {
        if (std::ranges::count(blocks_, static_cast<uint64_t>(block)) != 0) continue;
        blocks_.push_back(static_cast<uint64_t>(block));
        ranges_.emplace_back(block * kOfBlock, std::min((block + 1) * kOfBlock, count_));
      }
    }
    update_.step.formula = formula;
    update_.count = count_;
    update_.step.constants = drawn_constants(shape, formula);
    update_.step.undecayed = update_.step.constants;
    update_.step.undecayed.keep = 1;
    update_.step.undecayed.decay = 0;
    draw_ranges();
    draw_numbers();
  }

  void run() {
    update_.aligned = !shape_.one_in(3);
    Master* const master = array<Master>();
    State* states[2] = {};
    for (size_t k = 0; k < kStates[formula_]; ++k) update_.states[k] = states[k] = array<State>();
    for (const auto& [begin, end] : ranges_) {
      shape_.fill(master + begin, end - begin);
      for (State* const state : states) {
        if (state != nullptr) shape_.fill(state + begin, end - begin);
      }
      State* const squares = formula_ == kAdam      ? states[1]
                             : formula_ == kAdagrad ? states[0]
                                                    : nullptr;
      for (int64_t i = begin; squares != nullptr && i < end; ++i) {
        squares[i] = narrowed<State>(std::abs(wide(squares[i])));
      }
    }
    update_.master = master;
    switch (shape_.from_to(0, 2)) {
      case 0:
        return with_gradient<float>(kFp32, master, states);
      case 1:
        return with_gradient<Bf16>(kBf16, master, states);
      default:
        return with_gradient<Fp16>(kFp16, master, states);
    }
  }

 private:
  void draw_ranges() {
    if (shape_.one_in(2)) return;
    DecayRanges& decay_ranges = update_.step.decay_ranges;
    decay_ranges.count = static_cast<int>(shape_.from_to(1, optim::kernel::kMaxDecayRanges));
    decay_ranges.undecayed = static_cast<uint32_t>(shape_.next());
    for (int k = 0; k < decay_ranges.count; ++k) {
      decay_ranges.ends[k] = count_ * (k + 1) / decay_ranges.count / 4 * 4;
    }
    decay_ranges.ends[decay_ranges.count - 1] = count_;
  }

  void draw_numbers() {
    ElementOffsets& offsets = update_.step.offsets;
    offsets.first = static_cast<int64_t>(shape_.next() >> 20);
    if (shape_.one_in(2)) {
      offsets.left = shape_.from_to(1, 50);
      offsets.length = shape_.from_to(1, 50);
      offsets.gap = shape_.from_to(1, int64_t{1} << 33);
    }
    for (RoundingKey& key : update_.step.keys) {
      key = {static_cast<uint32_t>(shape_.next()), static_cast<uint32_t>(shape_.next())};
    }
  }

  template <typename T>
  T* array() {
    if (shape_.is_far()) return shape_.memory.far_array<T>(count_);
    return shape_.memory.array<T>(count_, shape_.offset(sizeof(T) * (update_.aligned ? 4 : 1)));
  }

  template <typename Grad>
  void with_gradient(Format format, Master* master, State* const (&states)[2]) {
    Grad* const grad = array<Grad>();
    for (const auto& [begin, end] : ranges_) {
      shape_.fill(grad + begin, end - begin);
      if (shape_.one_in(8)) shape_.put_special(grad + begin, end - begin);
    }
    update_.grad = grad;
    update_.grad_format = format;
    switch (shape_.from_to(0, 2)) {
      case 0:
        return launch_and_compare<Grad, Bf16>(grad, array<Bf16>(), master, states);
      case 1:
        update_.copy_format = kFp16;
        return launch_and_compare<Grad, Fp16>(grad, array<Fp16>(), master, states);
      default:
        return launch_and_compare<Grad, Fp16>(grad, nullptr, master, states);
    }
  }

  template <typename Grad, typename Copy>
  void launch_and_compare(const Grad* grad, Copy* copy, Master* master, State* const (&states)[2]) {
    update_.copy = copy;
    std::vector<std::vector<double>> before(3);
    for (const auto& [begin, end] : ranges_) {
      for (int64_t i = begin; i < end; ++i) {
        before[0].push_back(wide(master[i]));
        for (size_t k = 0; k < 2; ++k) {
          before[k + 1].push_back(states[k] == nullptr ? 0 : wide(states[k][i]));
        }
      }
    }
    update_.bf16_master = !std::is_same_v<Master, float>;
    update_.bf16_states = !std::is_same_v<State, float>;
    const auto launch = [&] { launch_update(update_, nullptr); };
    if (blocks_.empty()) {
      std::vector<std::span<std::byte>> outputs = {bytes_of(master, count_)};
      for (size_t k = 0; k < kStates[formula_]; ++k) {
        outputs.push_back(bytes_of(states[k], count_));
      }
      shape_.run(launch, std::move(outputs));
    } else {
      const OnlyBlocks only(blocks_);
      launch();
    }
    size_t at = 0;
    for (const auto& [begin, end] : ranges_) {
      for (int64_t i = begin; i < end; ++i, ++at) {
        const double s[2] = {before[1][at], before[2][at]};
        const After expected = after(formula_, constants_at(i), wide(grad[i]), before[0][at], s);
        const uint32_t number = number_of(update_.step.offsets, i);
        const auto random = [&](size_t k) { return rounding_bits(update_.step.keys[k], number); };
        expect_kept(shape_, "master", i, master[i], expected.of[0], random(0));
        for (size_t k = 0; k < kStates[formula_]; ++k) {
          expect_kept(shape_, "state", i, states[k][i], expected.of[k + 1], random(k + 1));
        }
        if (copy == nullptr) continue;
        shape_.expect("copy", i, copy[i], expected.of[0].value, expected.of[0].slack);
      }
    }
  }

  const Constants& constants_at(int64_t i) const {
    const DecayRanges& decay_ranges = update_.step.decay_ranges;
    for (int k = 0; k < decay_ranges.count; ++k) {
      // A thread's four elements go by the first of them.
      const bool here = i / 4 * 4 < decay_ranges.ends[k];
      if (here)
        return decay_ranges.undecayed >> k & 1 ? update_.step.undecayed : update_.step.constants;
    }
    return update_.step.constants;
  }

  Shape& shape_;
  Formula formula_;
  DeviceUpdate update_ = {};
  int64_t count_ = 0;
  std::vector<Range> ranges_;
  std::vector<uint64_t> blocks_;
};

template <typename Master, typename State>
void add_jobs(std::vector<Job>& jobs, const std::string& state_format) {
  const char* const names[] = {"Adam", "Lion", "Adagrad", "SGD", "SGD with momentum"};
  static_assert(std::size(names) == kNumFormulas);
  for (size_t formula = 0; formula < kNumFormulas; ++formula) {
    jobs.push_back({names[formula] + state_format, [formula](Shape& shape) {
                      Update<Master, State>(shape, static_cast<Formula>(formula)).run();
                    }});
  }
}

}  // namespace

TEST_CASE("update_kernel gives each optimizer's formula, rounded by the numbers of the elements") {
  std::vector<Job> jobs;
  add_jobs<float, float>(jobs, ", all in fp32");
  add_jobs<Bf16, float>(jobs, ", master in bf16");
  add_jobs<Bf16, Bf16>(jobs, ", all in bf16");
  run_shapes(jobs, {"update_kernel"});
}

}  // namespace zeroth::emulated::update_test
