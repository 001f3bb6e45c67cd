#include "model/blocks/rope.h"

#include <doctest/doctest.h>

#include "base/json/json.h"
#include "model/hf/config_reader.h"
#include "model/spec.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::rope_test {
namespace {

using torch::Tensor;

Tensor rotate_half(const Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

}  // namespace

TEST_CASE("rotation equals the textbook formula and its gradient turns back") {
  torch::manual_seed(5);
  RopeTable table(RopeSpec{}, 8, 64);
  const Tensor x = torch::randn({2, 5, 3, 8}).requires_grad_();
  const RopeTable::Angles angles = table.sequence(5, x.detach());
  const Tensor cos = at::cat({angles.cos, angles.cos}, -1);
  const Tensor sin = at::cat({angles.sin, angles.sin}, -1);
  const Tensor y = rotate(x, angles);
  CHECK(difference(y.detach(), (x * cos + rotate_half(x) * sin).detach()) < 1e-6);
  y.backward(y.detach());  // rotations keep lengths: the inverse gives x back
  CHECK(difference(x.grad(), x.detach()) < 1e-6);
}

TEST_CASE("position p turns pair i by p / theta^(2i / dim)") {
  RopeTable table(RopeSpec{.theta = 100}, 4, 64);
  const auto& angles = table.sequence(4, torch::zeros({}));
  CHECK(angles.cos.sizes().vec() == Sizes{1, 4, 1, 2});
  CHECK(angles.sin[0][3][0][0].item<double>() == doctest::Approx(std::sin(3.0)));
  CHECK(angles.sin[0][3][0][1].item<double>() == doctest::Approx(std::sin(3.0 / 10)));
}

TEST_CASE("linear scaling divides positions") {
  RopeTable plain(RopeSpec{}, 8, 64);
  RopeTable stretched(RopeSpec{.scaling = RopeScaling::kLinear, .factor = 4}, 8, 64);
  const Tensor like = torch::zeros({});
  CHECK(difference(stretched.sequence(9, like).cos.select(1, 8),
                   plain.sequence(9, like).cos.select(1, 2)) < 1e-6);
}

TEST_CASE("dynamic scaling acts beyond the model's positions only") {
  RopeTable plain(RopeSpec{}, 8, 16);
  RopeTable dynamic(RopeSpec{.scaling = RopeScaling::kDynamic, .factor = 2}, 8, 16);
  const Tensor like = torch::zeros({});
  CHECK(difference(dynamic.sequence(16, like).cos, plain.sequence(16, like).cos) < 1e-6);
  CHECK(difference(dynamic.sequence(32, like).cos, plain.sequence(32, like).cos) > 1e-2);
  const Tensor positions = torch::arange(32).unsqueeze(0);
  CHECK(torch::equal(dynamic.at(positions, like).cos, dynamic.sequence(32, like).cos));
}

TEST_CASE("angles of given positions are made once for all layers of a micro-batch") {
  RopeTable table(RopeSpec{}, 8, 64);
  const Tensor like = torch::zeros({}), positions = torch::tensor({{3, 4, 0, 1}});
  const void* first = table.at(positions, like).cos.data_ptr();
  CHECK(table.at(positions, like).cos.data_ptr() == first);
  CHECK(torch::equal(table.at(positions, like).cos[0][1], table.sequence(5, like).cos[0][4]));
  const Tensor others = torch::tensor({{0, 1, 2, 3}});
  CHECK(torch::equal(table.at(others, like).cos, table.sequence(4, like).cos));
  CHECK((table.at(others, like.to(torch::kBFloat16)).cos.scalar_type() == torch::kBFloat16));
}

TEST_CASE(
    "angles are made once for each of several micro-batches in flight, and dropped after it") {
  RopeTable table(RopeSpec{}, 8, 64);
  const Tensor like = torch::zeros({});
  Tensor first = torch::tensor({{3, 4}}), second = torch::tensor({{5, 6}});
  const void* const of_first = table.at(first, like).cos.data_ptr();
  const void* const of_second = table.at(second, like).cos.data_ptr();
  CHECK(of_first != of_second);
  for (int layer = 0; layer < 2; ++layer) {
    CHECK(table.at(first, like).cos.data_ptr() == of_first);
    CHECK(table.at(second, like).cos.data_ptr() == of_second);
  }
  const c10::weak_intrusive_ptr<c10::TensorImpl> kept(table.at(first, like).cos.getIntrusivePtr());
  first = Tensor();
  CHECK_FALSE(kept.expired());
  const Tensor third = torch::tensor({{7, 8}});
  table.at(third, like);
  CHECK(kept.expired());
  CHECK(table.at(second, like).cos.data_ptr() == of_second);
}

TEST_CASE("shorter sequences share the angles of the longest") {
  RopeTable table(RopeSpec{}, 8, 64);
  const Tensor like = torch::zeros({});
  const void* const angles = table.sequence(9, like).cos.data_ptr();
  CHECK(table.sequence(4, like).cos.data_ptr() == angles);
  CHECK(table.sequence(9, like).cos.data_ptr() == angles);
}

TEST_CASE("a table serves changing lengths and dtypes") {
  RopeTable table(RopeSpec{}, 8, 64);
  const Tensor like = torch::zeros({});
  const Tensor first = table.sequence(4, like).cos.clone();
  CHECK(table.sequence(9, like).cos.size(1) == 9);
  CHECK((table.sequence(4, like.to(torch::kBFloat16)).cos.scalar_type() == torch::kBFloat16));
  CHECK(torch::equal(table.sequence(4, like).cos, first));
}

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
    CHECK(torch::equal(got.eq(0), expected.eq(0)));
    CHECK(difference(at::where(got.eq(0), 1, got / expected), torch::ones_like(expected)) < 3e-7);
    CHECK(spec.attention_factor ==
          doctest::Approx(row["attention_factor"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("frequencies depend on the sequence's length where transformers looks at it") {
  CHECK(depends_on_length({.scaling = RopeScaling::kDynamic}));
  CHECK(depends_on_length({.scaling = RopeScaling::kLongRope}));
  CHECK_FALSE(depends_on_length({.scaling = RopeScaling::kYarn}));
}

}  // namespace zeroth::model::rope_test
