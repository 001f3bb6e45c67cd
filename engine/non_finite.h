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

  struct Skip {
    int64_t step = 0;
    double loss_scale = 1;
    std::optional<size_t> bad_output;  // this rank's first block whose output was not finite, where
                                       // that was looked at
  };

  void clean_step() { *this = NonFiniteSkips(); }
  // Looks for the place on the first skip of a row. On the tenth returns why the run cannot go on,
  // with block and parameter; empty before. Collective.
  std::string skipped_step(const Skip& skip, const zero::UnitPlan& plan,
                           const zero::GradReducer& grads, comm::Mesh& mesh);
  bool in_a_row() const { return in_a_row_ > 0; }

 private:
  int64_t in_a_row_ = 0;
  int64_t first_step_ = 0;
  std::string gradient_;  // "block layers.3, parameter layers.3.attention.q.weight"
  std::string output_;
};

}  // namespace zeroth::engine
