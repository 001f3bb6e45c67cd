// Parameters at fault in a step: the one that is left without a gradient, and the one that first
// stopped being finite, or whose gradient did. A parameter is encoded as one integer, with which a
// single all-reduce finds the first one over the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "configs/config.h"

namespace zeroth::comm {
class DeviceMesh;
}
namespace zeroth::zero {
class GradReducer;
struct Strategy;
struct UnitPlan;
}  // namespace zeroth::zero

namespace zeroth::engine {

inline constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Returns the parameter's order. Smaller is earlier in backward: units from the last to the first,
// slots from the last to the first.
int64_t parameter_order(const zero::UnitPlan& plan, size_t unit, size_t slot);

// Returns "block layers.3, parameter layers.3.attention.q.weight".
std::string parameter_at(const zero::UnitPlan& plan, int64_t order);

// Returns whether a trainable parameter with elements got no gradient on this rank in this step.
// Call it, and throw_unused_parameter(), before the reducer's reset().
bool has_unused_parameters(const zero::UnitPlan& plan, const zero::GradReducer& grads);

// Throws an Error that names the first unused parameter and its rank. Some rank must have one.
// Collective.
[[noreturn]] void throw_unused_parameter(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                                         int64_t step, const comm::DeviceMesh& mesh);

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
