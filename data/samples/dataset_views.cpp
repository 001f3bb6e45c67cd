// Datasets made of others: several as one, and some samples of one.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/samples/dataset.h"
#include "data/samples/sample_order.h"

namespace zeroth::data {
namespace {

class Concatenation : public Dataset {
 public:
  explicit Concatenation(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      begins_.push_back(size_);
      size_ += part->size();
    }
  }

  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return parts_.front()->seq_len(); }
  int64_t length(int64_t index) const override {
    const auto [part, inner] = find(index);
    return part.length(inner);
  }
  std::vector<int64_t> sample_lengths(int64_t index) const override {
    const auto [part, inner] = find(index);
    return part.sample_lengths(inner);
  }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    const auto [part, inner] = find(index);
    part.fill(inner, tokens, targets);
  }
  int64_t last_id(int64_t index) const override {
    const auto [part, inner] = find(index);
    return part.last_id(inner);
  }
  std::string sample_name(int64_t index) const override {
    const auto [part, inner] = find(index);
    return part.sample_name(inner);
  }
  DatasetStats stats() const override;

 private:
  std::pair<const Dataset&, int64_t> find(int64_t index) const {
    ZEROTH_CHECK(index >= 0 && index < size_, "sample {} of {}", index, size_);
    const auto next = std::ranges::upper_bound(begins_, index);
    const auto part = static_cast<size_t>(next - begins_.begin() - 1);
    return {*parts_[part], index - begins_[part]};
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int64_t> begins_;  // of each part
  int64_t size_ = 0;
};

DatasetStats Concatenation::stats() const {
  DatasetStats all;
  for (const auto& part : parts_) add_stats(part->stats(), all);
  return all;
}

class Selection : public Dataset {
 public:
  // `stats`: of the selected samples.
  Selection(std::shared_ptr<const Dataset> samples, std::vector<int64_t> indices,
            DatasetStats stats)
      : samples_(std::move(samples)), indices_(std::move(indices)), stats_(std::move(stats)) {}

  int64_t size() const override { return std::ssize(indices_); }
  int64_t seq_len() const override { return samples_->seq_len(); }
  int64_t length(int64_t index) const override { return samples_->length(at(index)); }
  std::vector<int64_t> sample_lengths(int64_t index) const override {
    return samples_->sample_lengths(at(index));
  }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    samples_->fill(at(index), tokens, targets);
  }
  int64_t last_id(int64_t index) const override { return samples_->last_id(at(index)); }
  std::string sample_name(int64_t index) const override { return samples_->sample_name(at(index)); }
  DatasetStats stats() const override { return stats_; }

 private:
  int64_t at(int64_t index) const {
    ZEROTH_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    return indices_[static_cast<size_t>(index)];
  }

  std::shared_ptr<const Dataset> samples_;
  std::vector<int64_t> indices_;
  DatasetStats stats_;
};

// Returns the statistics of `all` for these of its samples, whose tokens are counted.
DatasetStats count_selected(const Dataset& all, const std::vector<int64_t>& indices) {
  DatasetStats stats = all.stats();
  stats.samples = std::ssize(indices);
  stats.tokens = stats.num_label_tokens = 0;
  std::vector<int64_t> tokens, targets;
  for (const int64_t index : indices) {
    tokens.resize(static_cast<size_t>(all.length(index)));
    targets.resize(tokens.size());
    all.fill(index, tokens, targets);
    stats.tokens += std::ssize(tokens);
    stats.num_label_tokens +=
        std::ranges::count_if(targets, [](int64_t target) { return target != kIgnoreIndex; });
  }
  return stats;
}

}  // namespace

void add_stats(const DatasetStats& part, DatasetStats& all) {
  const bool first = all.samples == 0;
  const DatasetStats before = std::move(all);
  all = part;
  if (first) return;
  all.pairs |= before.pairs;
  all.chats |= before.chats;
  all.documents |= before.documents;
  all.chunked |= before.chunked;
  all.windows |= before.windows;
  all.named_fields |= before.named_fields;
  for (const auto member : {&DatasetStats::samples, &DatasetStats::rows, &DatasetStats::truncated,
                            &DatasetStats::cut_labels, &DatasetStats::split, &DatasetStats::dropped,
                            &DatasetStats::too_long, &DatasetStats::lost_tokens,
                            &DatasetStats::tokens, &DatasetStats::num_label_tokens}) {
    all.*member += before.*member;
  }
  for (const auto member :
       {&RecordFacts::blank_lines, &RecordFacts::bad_records, &RecordFacts::turns,
        &RecordFacts::turns_without_end, &RecordFacts::joined_parts,
        &RecordFacts::with_special_tokens, &RecordFacts::merged_boundaries}) {
    all.*member += before.*member;
  }
  if (before.fields != all.fields) all.fields = before.fields + "||" + all.fields;
}

std::unique_ptr<Dataset> concatenate(std::vector<std::unique_ptr<Dataset>> parts) {
  ZEROTH_CHECK(!parts.empty(), "no parts to concatenate");
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Concatenation>(std::move(parts));
}

SplitDataset split_samples(std::unique_ptr<Dataset> samples, int64_t num_held_out, uint64_t seed) {
  const std::shared_ptr<const Dataset> all = std::move(samples);
  std::vector<int64_t> held_out = choose_samples(all->size(), num_held_out, seed);
  std::vector<int64_t> rest;
  auto next = held_out.begin();
  for (int64_t i = 0; i < all->size(); ++i) {
    if (next != held_out.end() && *next == i) {
      ++next;
    } else {
      rest.push_back(i);
    }
  }
  const DatasetStats held_out_stats = count_selected(*all, held_out);  // the few of both
  DatasetStats rest_stats = all->stats();
  for (const auto member :
       {&DatasetStats::samples, &DatasetStats::tokens, &DatasetStats::num_label_tokens}) {
    rest_stats.*member -= held_out_stats.*member;
  }
  SplitDataset split;
  if (!rest.empty()) split.train = std::make_unique<Selection>(all, std::move(rest), rest_stats);
  if (!held_out.empty())
    split.held_out = std::make_unique<Selection>(all, std::move(held_out), held_out_stats);
  return split;
}

}  // namespace zeroth::data
