#include "monitor/curves.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace zeroth::monitor {

Curves::Curves(std::vector<std::string> names, size_t most)
    : names_(std::move(names)), most_(most) {
  ZEROTH_CHECK(most_ >= 2 && most_ % 2 == 0, "curves of at most {} points", most_);
}

void Curves::add(int64_t x, const std::vector<double>& values) {
  ZEROTH_CHECK(values.size() == names_.size(), "{} values, {} names", values.size(), names_.size());
  if (rows_.empty() || in_last_ == stride_) {
    if (rows_.size() == most_) merge_neighbours();
    rows_.emplace_back(names_.size());
    xs_.push_back(x);
    in_last_ = 0;
  }
  xs_.back() = x;
  ++in_last_;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    rows_.back()[i].sum += values[i];
    ++rows_.back()[i].count;
  }
}

double Curves::value(size_t name, size_t point) const {
  const Mean& mean = rows_[point][name];
  if (mean.count == 0) return std::numeric_limits<double>::quiet_NaN();
  return mean.sum / static_cast<double>(mean.count);
}

void Curves::merge_neighbours() {
  for (size_t i = 0; i < rows_.size() / 2; ++i) {
    Row merged = std::move(rows_[2 * i]);
    for (size_t name = 0; name < merged.size(); ++name) {
      merged[name].sum += rows_[2 * i + 1][name].sum;
      merged[name].count += rows_[2 * i + 1][name].count;
    }
    rows_[i] = std::move(merged);
    xs_[i] = xs_[2 * i + 1];
  }
  rows_.resize(rows_.size() / 2);
  xs_.resize(rows_.size());
  stride_ *= 2;
  in_last_ = stride_;
}

}  // namespace zeroth::monitor
