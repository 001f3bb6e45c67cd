#include "model/hf/config_reader.h"

#include <doctest/doctest.h>

#include "model/spec.h"

namespace zeroth::model::spec_rope_test {
namespace {

using nlohmann::json;

struct Read {
  RopeSpec rope;
  std::vector<std::string> errors;
};

Read read(const json& object) {
  ConfigReader config(object);
  const RopeSpec rope = read_rope(config, 8, 128);
  return {rope, config.errors()};
}

json with(json factors, const std::string& key, const json& value) {
  factors[key] = value;
  return factors;
}

const json kFactors = {{"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};

const json kLongRope = {
    {"type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {2, 3, 4, 5}}};

}  // namespace

TEST_CASE("without any key the rotary embedding is the plain one") {
  const RopeSpec rope = read(json::object()).rope;
  CHECK(rope.theta == 10000);
  CHECK(rope.scaling == RopeScaling::kNone);
}

TEST_CASE("old and new rope keys mean the same") {
  const json old = {{"rope_theta", 5e5}, {"rope_scaling", with(kFactors, "type", "llama3")}};
  const json now = {
      {"rope_parameters", with(with(kFactors, "rope_type", "llama3"), "rope_theta", 5e5)}};
  for (const json& object : {old, now}) {
    const Read result = read(object);
    CHECK(result.errors.empty());
    CHECK(result.rope.theta == 5e5);
    CHECK(result.rope.scaling == RopeScaling::kLlama3);
    CHECK(result.rope.factor == 8);
    CHECK(result.rope.original_max_positions == 128);  // the model's own, when not said
  }
}

TEST_CASE("the old key wins over the new one, as in transformers") {
  const Read result = read({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
                            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5.0}}}});
  CHECK(result.rope.scaling == RopeScaling::kLinear);
  CHECK(result.rope.theta == 10000);
}

TEST_CASE("a factor that yarn has as null, or longrope not at all, is the ratio of the contexts") {
  const auto factor = [](const json& scaling) {
    return read({{"rope_scaling", scaling}}).rope.factor;
  };
  const json yarn = {
      {"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 32}};
  CHECK(factor(yarn) == 4);
  CHECK(factor(with(yarn, "factor", 3)) == 3);
  CHECK(factor(with(kLongRope, "original_max_position_embeddings", 64)) == 2);
}

TEST_CASE("what the rotary embedding lacks or has too much is named") {
  const std::pair<json, std::string> cases[] = {
      {{{"rope_scaling", {{"type", "llama3"}, {"factor", 2.0}}}},
       "rope_scaling.low_freq_factor is missing"},
      {{{"rope_scaling", with(with(kFactors, "type", "llama3"), "low_freq_factor", 4.0)}},
       "rope_scaling.high_freq_factor is 4, the same as low_freq_factor, expected another value"},
      {{{"rope_parameters", {{"rope_type", "linear"}, {"factor", -1}}}},
       "rope_parameters.factor is -1, expected more than 0"},
      {{{"rope_parameters", {{"full_attention", {{"rope_type", "linear"}}}}}},
       "rope_parameters.full_attention is {\"rope_type\":\"linear\"}, which is not supported"},
      {{{"rope_theta", "big"}}, "rope_theta is \"big\", expected a number"},
      {{{"rope_theta", 1}, {"rope_scaling", {{"type", "yarn"}, {"factor", 2}}}},
       "rope_scaling.rope_theta is 1, expected more than 1 for yarn"},
      {{{"rope_scaling", {{"type", "yarn"}}}}, "rope_scaling.factor is missing"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"beta_slow", -1}}}},
       "rope_scaling.beta_slow is -1, expected more than 0"},
      {{{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2, 0, 1}}}}},
       "rope_scaling.short_factor is [1,2,0,1], expected 4 numbers above 0"},
      {{{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2, 3}}}}},
       "rope_scaling.short_factor is [1,2,3], expected 4 numbers above 0"},
      {{{"rope_scaling", with(kLongRope, "original_max_position_embeddings", 1)}},
       "rope_scaling.original_max_position_embeddings is 1, expected more than 1"},
  };
  for (const auto& [object, message] : cases) {
    const std::vector<std::string> said = read(object).errors;
    REQUIRE(!said.empty());
    CHECK(said.front() == message);
  }
}

}  // namespace zeroth::model::spec_rope_test
