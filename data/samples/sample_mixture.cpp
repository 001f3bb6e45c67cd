#include "data/samples/sample_mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace zeroth::data {
namespace {

constexpr int64_t kMaxPeriod = 1'000'000;

// Returns whole numbers in the ratio of the weights, with a sum of at most about kMaxPeriod.
std::vector<int64_t> whole_shares(const std::vector<MixturePart>& parts) {
  double sum = 0;
  for (const MixturePart& part : parts) sum += part.weight;
  const auto scaled = [&](double scale) {
    std::vector<int64_t> shares;
    for (const MixturePart& part : parts)
      shares.push_back(std::max<int64_t>(1, std::llround(part.weight * scale)));
    return shares;
  };
  // The smallest power of ten that makes all weights whole, as 0.7 and 0.3 are 7 and 3.
  for (double scale = 1; scale * sum <= kMaxPeriod; scale *= 10) {
    const auto is_whole = [&](const MixturePart& part) {
      const double value = part.weight * scale;
      return value >= 0.5 && std::abs(value - std::round(value)) < 1e-9 * value;
    };
    if (std::ranges::all_of(parts, is_whole)) return scaled(scale);
  }
  return scaled(kMaxPeriod / sum);
}

}  // namespace

SampleMixture::SampleMixture(std::vector<MixturePart> parts)
    : parts_(std::move(parts)), shares_(whole_shares(parts_)), places_(parts_.size()) {
  ZEROTH_CHECK(!parts_.empty(), "a mixture of no parts");
  const int64_t divisor = std::accumulate(shares_.begin(), shares_.end(), int64_t{0},
                                          [](int64_t a, int64_t b) { return std::gcd(a, b); });
  for (int64_t& share : shares_) share /= divisor;
  fill_period();
  epoch_size_ = std::numeric_limits<int64_t>::max();
  for (size_t part = 0; part < parts_.size(); ++part) {
    // The index of the first sample that the part does not have.
    const int64_t periods = parts_[part].size / shares_[part];
    const auto rest = static_cast<size_t>(parts_[part].size % shares_[part]);
    epoch_size_ =
        std::min(epoch_size_, periods * std::ssize(part_at_) + int64_t{places_[part][rest]});
  }
}

void SampleMixture::fill_period() {
  const auto count = static_cast<double>(parts_.size());
  const int64_t period = std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  const double slack = parts_.size() > 1 ? 1 / (2 * count - 2) : 1;
  for (int64_t n = 1; n <= period; ++n) {
    // Of the parts that may take the next sample, the one that has to take it first.
    size_t best = 0;
    double earliest = std::numeric_limits<double>::infinity();
    for (size_t part = 0; part < parts_.size(); ++part) {
      const double share = static_cast<double>(shares_[part]) / static_cast<double>(period);
      const double due = static_cast<double>(n) * share - static_cast<double>(places_[part].size());
      constexpr double kRounding = 1e-9;
      if (due < slack - kRounding) continue;
      const double deadline = (1 - slack - due) / share;
      if (deadline >= earliest) continue;
      best = part;
      earliest = deadline;
    }
    part_at_.push_back(static_cast<uint32_t>(best));
    rank_at_.push_back(static_cast<uint32_t>(places_[best].size()));
    places_[best].push_back(static_cast<uint32_t>(n - 1));
  }
}

SampleMixture::Pick SampleMixture::at(int64_t index) const {
  const int64_t period = std::ssize(part_at_);
  const auto within = static_cast<size_t>(index % period);
  const size_t part = part_at_[within];
  return {.part = part, .index = index / period * shares_[part] + int64_t{rank_at_[within]}};
}

}  // namespace zeroth::data
