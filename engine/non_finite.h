// Which parameter, gradient or activation stopped being finite, for the person who has to find out
// why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "zero/strategy.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Counts steps in a row whose gradients are not finite and remembers where the first of them went
// wrong.
class NonFiniteSkips {
 public:
  static constexpr int64_t kMaxInARow = 10;

  // Which skipped step ends the run. One after which parameters are not finite always does.
  enum class End {
    kTenthInARow,
    kFirst,
    kAtFloor,  // of a dynamic loss scale, as in DeepSpeed; until there it only falls
  };
  explicit NonFiniteSkips(End end = End::kTenthInARow) : end_(end) {}

  // Of the steps in a row so far; what a checkpoint keeps.
  struct State {
    int64_t in_a_row = 0;
    int64_t first_step = 0;
    std::string gradient = {};  // "block layers.3, parameter layers.3.attention.q.weight"
    bool in_one = false;        // parameter's gradient, not only in the norm of all
    std::string output = {};    // what is known of the first block whose output was not finite
    bool operator==(const State&) const = default;
  };
  const State& state() const { return row_; }
  void restore(State state) { row_ = std::move(state); }

  struct Skip {
    int64_t step = 0;
    double loss_scale = 1;
    bool at_floor = false;             // LossScaler::at_floor() at this overflow
    bool applied = false;              // the step is not skipped: its update is to come
    std::optional<size_t> bad_output;  // this rank's first block whose output was not finite, where
                                       // that was looked at
  };

  void clean_step() { *this = NonFiniteSkips(end_); }
  // Looks for the place on the first step of a row, before an update. At the one that ends the run
  // returns why, with block and parameter; empty before. Collective.
  std::string not_finite(const Skip& skip, const zero::UnitPlan& plan,
                         const zero::Strategy& strategy, comm::DeviceMesh& mesh);
  bool in_a_row() const { return row_.in_a_row > 0; }
  // StepStats::not_finite, in such a row.
  std::string since() const;

 private:
  void find_gradient(const Skip& skip, const zero::UnitPlan& plan, const zero::Strategy& strategy,
                     comm::DeviceMesh& mesh);
  void find_output(const Skip& skip, const zero::UnitPlan& plan, comm::DeviceMesh& mesh);
  bool ends(const Skip& skip) const;
  std::string describe_skip(const Skip& skip) const;

  End end_;
  State row_;
  std::string parameter_;  // as `gradient`, where a parameter itself is not finite; else empty
};

// As the configuration asks for it.
NonFiniteSkips make_non_finite_skips(const configs::Config& config);

}  // namespace zeroth::engine
