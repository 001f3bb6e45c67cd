#include "model/spec.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::model {

TEST_CASE("a layer's window is the model's where its flag is set") {
  ModelSpec spec;
  spec.num_layers = 2;
  spec.windowed_layers = {false, true};
  CHECK(spec.layer_window(1) == 0);
  spec.sliding_window = 9;
  CHECK(spec.layer_window(0) == 0);
  CHECK(spec.layer_window(1) == 9);
  CHECK_THROWS_AS(spec.layer_window(2), InternalError);
}

}  // namespace zeroth::model
