#include "monitor/curves.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace zeroth::monitor {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSteps = int64_t{1} << 40;  // more than any run trains

}  // namespace

Curves::Curves(std::vector<std::string> names, size_t max_points)
    : names_(std::move(names)), max_points_(max_points) {
  ZEROTH_CHECK(max_points_ >= 2 && max_points_ % 2 == 0, "curves of at most {} points",
               max_points_);
}

void Curves::add(int64_t x, const std::vector<double>& values) {
  ZEROTH_CHECK(values.size() == names_.size(), "{} values, {} names", values.size(), names_.size());
  if (rows_.empty() || num_in_last_ == stride_) {
    if (rows_.size() == max_points_) merge_neighbors();
    rows_.emplace_back(names_.size());
    xs_.push_back(x);
    num_in_last_ = 0;
  }
  xs_.back() = x;
  ++num_in_last_;
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

void Curves::merge_neighbors() {
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
  num_in_last_ = stride_;
}

Json Curves::to_json() const {
  Json curves = Json::object();
  for (size_t name = 0; name < names_.size(); ++name) {
    Json sums = Json::array(), counts = Json::array();
    for (const Row& row : rows_) {
      sums.push_back(exact_number(row[name].sum));
      counts.push_back(row[name].count);
    }
    curves[names_[name]] = {{"sums", std::move(sums)}, {"counts", std::move(counts)}};
  }
  return {
      {"stride", stride_}, {"in_last", num_in_last_}, {"xs", xs_}, {"curves", std::move(curves)}};
}

void Curves::restore(const JsonView& saved) {
  Curves found(names_, max_points_);
  const JsonView xs = saved.at("xs"), stride = saved.at("stride");
  found.stride_ = stride.integer(1, kMaxSteps);
  if ((found.stride_ & (found.stride_ - 1)) != 0) stride.refuse("a power of two");
  if (xs.size() > max_points_) {
    throw Error("{} has {} points, at most {} are kept", xs.path(), xs.size(), max_points_);
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    found.xs_.push_back(xs.at(i).integer(i == 0 ? 0 : found.xs_.back(), kMaxSteps));
  }
  found.rows_.assign(xs.size(), Row(names_.size()));
  found.num_in_last_ = saved.at("in_last").integer(xs.size() == 0 ? 0 : 1, found.stride_);
  const JsonView curves = saved.at("curves");
  for (size_t name = 0; name < names_.size(); ++name) {
    if (const auto curve = curves.find(names_[name])) found.restore_means(*curve, name);
  }
  *this = std::move(found);
}

void Curves::restore_means(const JsonView& saved, size_t name) {
  const JsonView sums = saved.at("sums"), counts = saved.at("counts");
  for (const JsonView& list : {sums, counts}) {
    if (list.size() == rows_.size()) continue;
    throw Error("{} has {} numbers, expected {}", list.path(), list.size(), rows_.size());
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i][name] = {.sum = exact_number(sums.at(i)), .count = counts.at(i).integer(0, kMaxSteps)};
  }
}

}  // namespace zeroth::monitor
