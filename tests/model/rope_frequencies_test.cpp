#include "model/blocks/rope_frequencies.h"

#include <doctest/doctest.h>

#include "base/json/json.h"
#include "model/hf/spec_rope.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model {

// tools/make_model_fixtures.py has them from transformers.
TEST_CASE("frequencies of every kind are those of transformers, to a rounding of fp32") {
  const auto cases = nlohmann::json::parse(read_text(fixture("rope_frequencies.json")));
  CHECK(cases.size() >= 12);
  for (const nlohmann::json& row : cases) {
    CAPTURE(row["config"].dump());
    const nlohmann::json config = row["config"];
    const int64_t head_dim = config["head_dim"], positions = config["max_position_embeddings"];
    ConfigReader reader(config);
    const RopeSpec spec = read_rope(reader, head_dim, positions);
    CHECK(reader.errors().empty());
    const torch::Tensor expected =
        torch::tensor(row["frequencies"].get<std::vector<double>>(), torch::kFloat64);
    const torch::Tensor got = rope_frequencies(spec, head_dim, positions, row["seq"]);
    CHECK(difference(got / expected, torch::ones_like(expected)) < 3e-7);
    CHECK(spec.attention_factor ==
          doctest::Approx(row["attention_factor"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("frequencies depend on the sequence's length where transformers looks at it") {
  CHECK(depends_on_length({.scaling = RopeScaling::kDynamic}));
  CHECK(depends_on_length({.scaling = RopeScaling::kLongRope}));
  CHECK_FALSE(depends_on_length({.scaling = RopeScaling::kYarn}));
}

}  // namespace zeroth::model
