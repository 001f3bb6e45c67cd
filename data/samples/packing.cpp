// Rows that hold several whole samples, one after the other.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/units.h"
#include "data/samples/dataset.h"

namespace zeroth::data {
namespace {

// Rows of a group fill all but a fraction of a percent, unless most samples are longer than half a
// row.
constexpr int64_t kGroup = 1 << 16;

class PackedSamples : public Dataset {
 public:
  explicit PackedSamples(std::unique_ptr<Dataset> samples);

  int64_t size() const override { return std::ssize(row_begins_) - 1; }
  int64_t seq_len() const override { return samples_->seq_len(); }
  int64_t length(int64_t index) const override;
  std::vector<int64_t> sample_lengths(int64_t index) const override;
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override;
  std::string sample_name(int64_t index) const override;
  DatasetStats stats() const override;

 private:
  std::span<const int32_t> row(int64_t index) const;

  std::unique_ptr<Dataset> samples_;
  std::vector<int32_t> members_;     // samples, row by row
  std::vector<int64_t> row_begins_;  // in members_, and its size
};

PackedSamples::PackedSamples(std::unique_ptr<Dataset> samples) : samples_(std::move(samples)) {
  const int64_t count = samples_->size();
  for (int64_t first = 0; first < count; first += kGroup) {
    std::vector<int32_t> group(static_cast<size_t>(std::min(kGroup, count - first)));
    std::iota(group.begin(), group.end(), static_cast<int32_t>(first));
    std::ranges::stable_sort(group, std::greater(),
                             [&](int32_t sample) { return samples_->length(sample); });
    std::vector<std::vector<int32_t>> rows;
    std::set<std::pair<int64_t, size_t>> room;  // positions that are left in a row, and the row
    for (const int32_t sample : group) {
      const int64_t length = samples_->length(sample);
      auto best = room.lower_bound({length, 0});
      if (best == room.end()) {
        best = room.emplace(seq_len(), rows.size()).first;
        rows.emplace_back();
      }
      const auto [left, index] = *best;
      room.erase(best);
      room.emplace(left - length, index);
      rows[index].push_back(sample);
    }
    for (std::vector<int32_t>& members : rows) {
      std::ranges::sort(members);
      row_begins_.push_back(std::ssize(members_));
      members_.insert(members_.end(), members.begin(), members.end());
    }
  }
  row_begins_.push_back(std::ssize(members_));
}

std::span<const int32_t> PackedSamples::row(int64_t index) const {
  ZEROTH_CHECK(index >= 0 && index < size(), "row {} of {}", index, size());
  const auto begin = static_cast<size_t>(row_begins_[index]);
  return std::span(members_).subspan(begin, static_cast<size_t>(row_begins_[index + 1]) - begin);
}

int64_t PackedSamples::length(int64_t index) const {
  const std::vector<int64_t> lengths = sample_lengths(index);
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::vector<int64_t> PackedSamples::sample_lengths(int64_t index) const {
  std::vector<int64_t> lengths;
  for (const int32_t sample : row(index)) lengths.push_back(samples_->length(sample));
  return lengths;
}

void PackedSamples::fill(int64_t index, std::span<int64_t> tokens,
                         std::span<int64_t> targets) const {
  for (const int32_t sample : row(index)) {
    const auto length = static_cast<size_t>(samples_->length(sample));
    const bool is_last = sample == row(index).back();  // its padding is the row's
    samples_->fill(sample, is_last ? tokens : tokens.first(length),
                   is_last ? targets : targets.first(length));
    tokens = tokens.subspan(length);
    targets = targets.subspan(length);
  }
}

std::string PackedSamples::sample_name(int64_t index) const {
  const auto members = row(index);
  const std::string first = samples_->sample_name(members.front());
  if (members.size() == 1) return first;
  return fmt::format("{} and {} packed with it", first,
                     pluralize(std::ssize(members) - 1, "sample"));
}

DatasetStats PackedSamples::stats() const {
  DatasetStats stats = samples_->stats();
  stats.rows = size();
  stats.fields += "|packed";
  return stats;
}

}  // namespace

std::unique_ptr<Dataset> pack_samples(std::unique_ptr<Dataset> samples) {
  return std::make_unique<PackedSamples>(std::move(samples));
}

}  // namespace zeroth::data
