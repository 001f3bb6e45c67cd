// Diagnosis of the parameter, gradient or activation that first stopped being finite.
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

// NonFiniteSkips counts consecutive steps whose gradients are not finite, and remembers where the
// first of them failed.
class NonFiniteSkips {
 public:
  static constexpr int64_t kMaxInARow = 10;

  // End selects the skipped step that ends the run. A step after which parameters are not finite
  // always ends it.
  enum class End {
    kTenthInARow,
    kFirst,
    kAtFloor,  // of a dynamic loss scale, as in DeepSpeed; until there it only decreases
  };
  explicit NonFiniteSkips(End end = End::kTenthInARow) : end_(end) {}

  // State describes the consecutive steps so far; checkpoints save it.
  struct State {
    int64_t in_a_row = 0;
    int64_t first_step = 0;
    std::string gradient = {};  // "block layers.3, parameter layers.3.attention.q.weight"
    bool in_one = false;        // in one parameter's gradient, not only in the norm of all
    std::string output = {};    // description of the first block whose output was not finite
    bool operator==(const State&) const = default;
  };
  const State& state() const { return row_; }
  void restore(State state) { row_ = std::move(state); }

  struct Skip {
    int64_t step = 0;
    double loss_scale = 1;
    bool at_floor = false;             // LossScaler::at_floor() at this overflow
    bool applied = false;              // the step is not skipped: its update follows
    std::optional<size_t> bad_output;  // this rank's first block whose output was not finite, if
                                       // outputs were checked
  };

  void clean_step() { *this = NonFiniteSkips(end_); }
  // Locates the cause on the first step of a sequence, before an update. Returns the reason, with
  // block and parameter, at the step that ends the run; empty before. Collective.
  std::string not_finite(const Skip& skip, const zero::UnitPlan& plan,
                         const zero::Strategy& strategy, comm::DeviceMesh& mesh);
  bool in_a_row() const { return row_.in_a_row > 0; }
  // Returns StepStats::not_finite, within such a sequence.
  std::string since() const;

 private:
  void find_gradient(const Skip& skip, const zero::UnitPlan& plan, const zero::Strategy& strategy,
                     comm::DeviceMesh& mesh);
  void find_output(const Skip& skip, const zero::UnitPlan& plan, comm::DeviceMesh& mesh);
  bool ends(const Skip& skip) const;
  std::string describe_skip(const Skip& skip) const;

  End end_;
  State row_;
  std::string parameter_;  // like `gradient`, if a parameter itself is not finite; otherwise empty
};

// Returns the counter that the configuration requests.
NonFiniteSkips make_non_finite_skips(const configs::Config& config);

}  // namespace zeroth::engine
