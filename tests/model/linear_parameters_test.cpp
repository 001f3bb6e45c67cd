// The parameters of products in NF4, and of those that ranks split.
#include <doctest/doctest.h>

#include <memory>

#include "model/blocks/build_blocks.h"
#include "model/blocks/linear.h"
#include "tests/model/materialize.h"

namespace zeroth::model::linear_parameters_test {
namespace {

Sizes sizes(const torch::Tensor& tensor) {
  return tensor.sizes().vec();
}

TensorParallelPtr second_of_two() {
  return std::make_shared<TensorParallel>(1, 2, TensorParallel::CommOptions{});
}

ModelSpec wide_spec(bool is_double) {
  ModelSpec spec = read_model_spec(fixture("llama_wide"));
  spec.quantization = QuantizationSpec{.double_quant = is_double};
  return spec;
}

}  // namespace

TEST_CASE("codes and scales have a row for each output, or are flat where rows cut blocks") {
  const Linear rows({.in = 128, .out = 10, .quantization = QuantizationSpec{}});
  CHECK(sizes(rows.weight) == Sizes{10, 64});
  CHECK(sizes(rows.quantized->scales.absmax) == Sizes{10, 8});
  CHECK_FALSE(rows.quantized->scales.is_double());
  const Linear flat({.in = 40, .out = 10, .quantization = QuantizationSpec{.double_quant = true}});
  CHECK(sizes(flat.weight) == Sizes{200});
  CHECK(sizes(flat.quantized->scales.absmax) == Sizes{7});
  CHECK(sizes(flat.quantized->scales.nested_absmax) == Sizes{8});
  CHECK((flat.weight.scalar_type() == torch::kByte));
  CHECK_FALSE(flat.weight.requires_grad());
}

TEST_CASE("a block in NF4 has as many parameters as without") {
  for (const char* name : {"llama", "qwen3_tied"}) {
    ModelSpec spec = read_model_spec(fixture(name));
    const Blocks plain = build_blocks(spec);
    spec.quantization = QuantizationSpec{.double_quant = true};
    const Blocks quantized = build_blocks(spec);
    for (size_t i = 0; i < plain.size(); ++i)
      CHECK(count_parameters(*quantized[i]) == count_parameters(*plain[i]));
  }
}

TEST_CASE("ranks split codes and scales as they split weights, and share the nested scales") {
  const Blocks blocks = build_blocks(wide_spec(/*is_double=*/true), second_of_two());
  const Splits splits = blocks[1]->splits().value();
  const Split& up = splits.at("mlp.up.weight");  // [256, 128], by outputs
  CHECK(up.shape == Sizes{256, 64});
  CHECK(up.begin == Sizes{128, 0});
  const Split& down = splits.at("mlp.down.weight");  // [128, 256], by inputs
  CHECK(down.shape == Sizes{128, 128});
  CHECK(down.begin == Sizes{0, 64});
  CHECK(splits.at("mlp.down.weight_absmax").shape == Sizes{128, 4});
  CHECK(splits.at("mlp.down.weight_absmax").begin == Sizes{0, 2});
  CHECK_FALSE(splits.contains("mlp.down.weight_nested_absmax"));
  for (const auto& item : blocks[1]->named_modules()) {
    const auto* const layer = item.value()->as<Linear>();
    if (layer == nullptr) continue;
    const BlockPlace& place = layer->quantized->scales.place;
    if (item.key() == "mlp.up") CHECK(place.first == 128 * 2);
    if (item.key() != "mlp.down") continue;
    CHECK(place.first == 2);
    CHECK(place.per_row == 2);
    CHECK(place.row_step == 4);
  }
}

}  // namespace zeroth::model::linear_parameters_test
