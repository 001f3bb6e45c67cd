// The numbers of a run's steps, kept small however long the run is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_view.h"

namespace zeroth::monitor {

// Rows of numbers under one x each. Beyond `max_points` rows, neighbours are merged: what is kept
// is the mean of 2, 4, 8 ... steps at the last one's x. Values that are not finite do not enter a
// mean; where all of them are not, it is a NaN.
class Curves {
 public:
  explicit Curves(std::vector<std::string> names, size_t max_points = 1024);

  // `values`: one per name.
  void add(int64_t x, const std::vector<double>& values);

  const std::vector<std::string>& names() const { return names_; }
  size_t size() const { return xs_.size(); }
  int64_t steps_per_point() const { return stride_; }
  // The last point may stand for fewer steps than the others.
  const std::vector<int64_t>& xs() const { return xs_; }
  double value(size_t name, size_t point) const;

  // All of it, to the bit, for restore() of a later program.
  nlohmann::json to_json() const;
  // Takes the place of what is there. Throws an Error that names what is wrong with it. A curve
  // that is not in it has no numbers up to there; one that has gone is left out.
  void restore(const JsonView& saved);

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
  };
  using Row = std::vector<Mean>;

  void merge_neighbors();
  void restore_means(const JsonView& saved, size_t name);

  std::vector<std::string> names_;
  size_t max_points_;
  int64_t stride_ = 1;
  int64_t num_in_last_ = 0;  // steps in the last row
  std::vector<int64_t> xs_;
  std::vector<Row> rows_;
};

}  // namespace zeroth::monitor
