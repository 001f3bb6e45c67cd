// Curves over a run's steps, kept small however long the run is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json/json_view.h"

namespace zeroth::monitor {

// Curves holds rows of numbers, each at one x. Neighbors are merged if there are more than
// `max_points` rows: a row is then the mean of 2, 4, 8 ... steps at the x of the last one. Values
// that are not finite do not enter a mean; a mean without any finite value is a NaN.
class Curves {
 public:
  explicit Curves(std::vector<std::string> names, size_t max_points = 1024);

  // Adds a row. `values`: one per name.
  void add(int64_t x, const std::vector<double>& values);

  const std::vector<std::string>& names() const { return names_; }
  size_t size() const { return xs_.size(); }
  int64_t steps_per_point() const { return stride_; }
  // Returns the x of each point. The last point may represent fewer steps than the others.
  const std::vector<int64_t>& xs() const { return xs_; }
  double value(size_t name, size_t point) const;

  // Returns the full state, exact to the bit, for restore() in a later process.
  nlohmann::json to_json() const;
  // Replaces the current state. Throws an Error that describes what is invalid in `saved`. A curve
  // missing in `saved` has no numbers up to there; a curve that no longer exists is ignored.
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
