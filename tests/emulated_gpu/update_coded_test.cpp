// The kernel of the update of coded moments beside its formula in double: what it stores is the
// nearest code of each new moment.
#include <doctest/doctest.h>

#include <array>

#include "base/dynamic_map.h"
#include "optim/gpu/kernels.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::update_coded_test {
namespace {

using namespace optim::kernel;

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kOfBlock = 2048;  // elements that a block of threads updates

double step_of(double x) {
  return std::abs(x) * kFloatStep;
}

// A number, and how far fp32 may be from it.
struct About {
  double value = 0, slack = 0;
};

const std::array<float, 256>& values_of(size_t state) {
  static const std::array<float, 256> kMaps[] = {dynamic_map(true), dynamic_map(false)};
  return kMaps[state];
}

class Update {
 public:
  explicit Update(Shape& shape) : shape_(shape) {
    count_ = shape.is_far()     ? kFar + shape.from_to(1, 4 * kOfBlock)
             : shape.one_in(20) ? shape.from_to(kOfBlock, 3 * kOfBlock)
                                : shape.from_to(1, 700);
    shape.text = std::to_string(count_) + " elements";
    ranges_ = {{0, count_}};
    if (shape.is_far()) {
      const int64_t last = (count_ - 1) / kOfBlock;
      ranges_ = {{last * kOfBlock, count_}};
      blocks_ = {static_cast<uint64_t>(last)};
    }
    update_.step.formula = kCodedAdam;
    update_.count = count_;
    update_.tables = &code_tables();
    draw_constants();
    draw_ranges();
  }

  void run() {
    update_.aligned = !shape_.one_in(3);
    auto* const master = array<float>(count_);
    update_.master = master;
    for (size_t k = 0; k < 2; ++k) {
      update_.states[k] = codes_[k] = array<uint8_t>(count_);
      update_.maxima[k] = array<float>(code_blocks(count_));
    }
    for (const auto& [begin, end] : ranges_) {
      shape_.fill(master + begin, end - begin);
      for (size_t k = 0; k < 2; ++k) {
        for (int64_t i = begin; i < end; ++i) codes_[k][i] = static_cast<uint8_t>(shape_.next());
        for (int64_t i = begin / kCodeBlock; i < code_blocks(end); ++i) {
          update_.maxima[k][i] = static_cast<float>(std::abs(usual_value(shape_)));
        }
      }
    }
    switch (shape_.from_to(0, 2)) {
      case 0:
        return with_gradient<float>(kFp32, master);
      case 1:
        return with_gradient<Bf16>(kBf16, master);
      default:
        return with_gradient<Fp16>(kFp16, master);
    }
  }

 private:
  void draw_constants() {
    const auto fraction = [&](double low, double high) {
      return static_cast<float>(low + (high - low) * shape_.uniform());
    };
    Constants& c = update_.step.constants;
    if (shape_.one_in(2)) (shape_.one_in(2) ? c.factor : c.divisor) = fraction(0.25, 8);
    c.keep = fraction(0.9, 1);
    c.minus_rate = -fraction(1e-3, 0.1);
    c.keep_first = fraction(0.8, 0.99);
    c.add_first = 1 - c.keep_first;
    c.keep_second = fraction(0.9, 0.999);
    c.add_second = 1 - c.keep_second;
    c.root_divisor = fraction(0.05, 1);
    c.eps = 1e-8F;
    update_.step.undecayed = c;
    update_.step.undecayed.keep = 1;
  }

  void draw_ranges() {
    if (shape_.one_in(2)) return;
    DecayRanges& decay_ranges = update_.step.decay_ranges;
    decay_ranges.count = static_cast<int>(shape_.from_to(1, kMaxDecayRanges));
    decay_ranges.undecayed = static_cast<uint32_t>(shape_.next());
    for (int k = 0; k < decay_ranges.count; ++k) {
      decay_ranges.ends[k] = count_ * (k + 1) / decay_ranges.count / kCodeBlock * kCodeBlock;
    }
    decay_ranges.ends[decay_ranges.count - 1] = count_;
  }

  const Constants& constants_at(int64_t i) const {
    const DecayRanges& decay_ranges = update_.step.decay_ranges;
    for (int k = 0; k < decay_ranges.count; ++k) {
      if (i >= decay_ranges.ends[k]) continue;
      return decay_ranges.undecayed >> k & 1 ? update_.step.undecayed : update_.step.constants;
    }
    return update_.step.constants;
  }

  template <typename T>
  T* array(int64_t count) {
    if (shape_.is_far()) return shape_.memory.far_array<T>(count);
    return shape_.memory.array<T>(count, shape_.offset(sizeof(T) * (update_.aligned ? 4 : 1)));
  }

  template <typename Grad>
  void with_gradient(Format format, float* master) {
    Grad* const grad = array<Grad>(count_);
    for (const auto& [begin, end] : ranges_) shape_.fill(grad + begin, end - begin);
    update_.grad = grad;
    update_.grad_format = format;
    switch (shape_.from_to(0, 2)) {
      case 0:
        return launch_and_compare<Grad, Bf16>(grad, array<Bf16>(count_), master);
      case 1:
        update_.copy_format = kFp16;
        return launch_and_compare<Grad, Fp16>(grad, array<Fp16>(count_), master);
      default:
        return launch_and_compare<Grad, Fp16>(grad, nullptr, master);
    }
  }

  // The moments and the weight of element i after the update.
  struct After {
    About moments[2], weight;
  };
  template <typename Grad>
  After after(int64_t i, const Grad* grad, double p) const {
    const Constants& c = constants_at(i);
    const double g = wide(grad[i]) * c.factor / c.divisor, g_slack = 2 * step_of(g);
    const auto old = [&](size_t k) {
      return double{values_of(k)[codes_[k][i]]} * update_.maxima[k][i / kCodeBlock];
    };
    const double m_old = old(0) * c.keep_first, v_old = old(1) * c.keep_second;
    const About m = {m_old + c.add_first * g, 4 * (step_of(m_old) + step_of(g)) + g_slack};
    const double v = v_old + c.add_second * g * g;
    const About second = {v, 8 * step_of(v) + 4 * std::abs(g) * g_slack};
    const double divisor = std::sqrt(v) / c.root_divisor + c.eps, rate = c.minus_rate / divisor;
    const double relative = second.slack / std::max(v, 0x1p-126) + 8 * kFloatStep;
    const double kept = p * c.keep;
    return {{m, second},
            {kept + rate * m.value,
             std::abs(rate) * (m.slack + std::abs(m.value) * relative) + 4 * step_of(kept)}};
  }

  template <typename Grad, typename Copy>
  void launch_and_compare(const Grad* grad, Copy* copy, float* master) {
    update_.copy = copy;
    std::vector<After> expected;
    for (const auto& [begin, end] : ranges_) {
      for (int64_t i = begin; i < end; ++i) expected.push_back(after(i, grad, master[i]));
    }
    const auto launch = [&] { launch_update(update_, nullptr); };
    if (blocks_.empty()) {
      std::vector<std::span<std::byte>> outputs = {bytes_of(master, count_)};
      for (size_t k = 0; k < 2; ++k) {
        outputs.push_back(bytes_of(codes_[k], count_));
        outputs.push_back(bytes_of(update_.maxima[k], code_blocks(count_)));
      }
      shape_.run(launch, std::move(outputs));
    } else {
      const OnlyBlocks only(blocks_);
      launch();
    }
    const auto [begin, end] = ranges_.front();
    for (int64_t i = begin; i < end; ++i) {
      const About& weight = expected[static_cast<size_t>(i - begin)].weight;
      shape_.expect("master", i, master[i], weight.value, weight.slack);
      if (copy != nullptr) shape_.expect("copy", i, copy[i], weight.value, weight.slack);
    }
    for (int64_t first = begin; first < end; first += kCodeBlock) {
      for (size_t k = 0; k < 2; ++k) {
        compare_block(k, first, std::min(first + kCodeBlock, end), begin, expected);
      }
    }
  }

  // The block's maximum is that of its new moments, and each code is the nearest to its moment.
  void compare_block(size_t k, int64_t first, int64_t last, int64_t begin,
                     const std::vector<After>& expected) const {
    About largest;
    for (int64_t i = first; i < last; ++i) {
      const About& moment = expected[static_cast<size_t>(i - begin)].moments[k];
      largest.value = std::max(largest.value, std::abs(moment.value));
      largest.slack = std::max(largest.slack, moment.slack);
    }
    const float maximum = update_.maxima[k][first / kCodeBlock];
    shape_.expect("maximum", first / kCodeBlock, maximum, largest.value, largest.slack);
    for (int64_t i = first; i < last; ++i) {
      const About& moment = expected[static_cast<size_t>(i - begin)].moments[k];
      const auto distance = [&](int code) {
        return std::abs(double{values_of(k)[code]} * maximum - moment.value);
      };
      double nearest = distance(0);
      for (int code = 1; code < 256; ++code) nearest = std::min(nearest, distance(code));
      const double slack = 2 * moment.slack + 8 * step_of(moment.value) + 4 * step_of(maximum);
      const double own = distance(codes_[k][i]);
      if (own > nearest + slack) shape_.fail("code", i, own, nearest, slack);
    }
  }

  Shape& shape_;
  DeviceUpdate update_ = {};
  int64_t count_ = 0;
  uint8_t* codes_[2] = {};
  std::vector<std::pair<int64_t, int64_t>> ranges_;
  std::vector<uint64_t> blocks_;
};

}  // namespace

TEST_CASE("update_coded_kernel gives Adam's formula and the nearest codes of its moments") {
  run_shapes({{"coded Adam", [](Shape& shape) { Update(shape).run(); }}}, {"update_coded_kernel"});
}

}  // namespace zeroth::emulated::update_coded_test
