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

TEST_CASE(
    "scores are scaled by the width of a head, and by the layer's number where that is said") {
  ModelSpec spec;
  spec.head_dim = 16;
  CHECK(spec.score_scale(2) == 0.25);
  spec.scale_scores_by_layer = true;
  CHECK(spec.score_scale(0) == 0.25);
  CHECK(spec.score_scale(2) == doctest::Approx(0.25 / 3));
  spec.scale_scores = false;
  CHECK(spec.score_scale(1) == 0.5);
}

TEST_CASE("an override sets the dropouts that the family has") {
  ModelSpec spec;
  spec.family = "llama";
  override_dropout(spec, 0.2);
  CHECK(spec.attention_dropout == 0.2);
  CHECK(spec.residual_dropout == 0);
  spec.family = "gpt2";
  override_dropout(spec, 0.3);
  CHECK(spec.attention_dropout == 0.3);
  CHECK(spec.residual_dropout == 0.3);
  CHECK(spec.embedding_dropout == 0.3);
  CHECK_THROWS_AS(override_dropout(spec, 1), Error);
  CHECK_THROWS_AS(override_dropout(spec, -0.1), Error);
}

}  // namespace zeroth::model
