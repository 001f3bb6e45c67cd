// Which gradient or activation stopped being finite, for the person who has to find out why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/mesh.h"
#include "zero/grad_reducer.h"
#include "zero/unit.h"

namespace zeroth::engine {

// Counts skipped steps in a row and remembers where the first of them went wrong.
class NonFiniteSkips {
 public:
  static constexpr int64_t kMostInARow = 10;

  void clean_step() { *this = NonFiniteSkips(); }
  // Looks for the place on the first skip of a row; throws an Error that names block and parameter
  // on the tenth. `bad_output`: this rank's first block whose output was not finite, where that was
  // watched. Collective.
  void skipped_step(int64_t step, const zero::UnitPlan& plan, const zero::GradReducer& grads,
                    std::optional<size_t> bad_output, comm::Mesh& mesh);
  bool in_a_row() const { return in_a_row_ > 0; }

 private:
  int64_t in_a_row_ = 0;
  int64_t first_step_ = 0;
  std::string gradient_;  // "block layers.3, parameter layers.3.attention.q.weight"
  std::string output_;
};

}  // namespace zeroth::engine
