#include "model/hf/nf4_source.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/blocks/linear.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/safetensors.h"
#include "tests/model/materialize.h"
#include "tests/model/safetensors_text.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::nf4_source_test {
namespace {

using torch::Tensor;

// A model of random weights with rows of several blocks.
ModelSpec wide_spec(bool is_double, int64_t hidden = 128) {
  ModelSpec spec = read_model_spec(fixture("llama"));
  spec.hidden_size = hidden;
  spec.head_dim = hidden / spec.num_heads;
  spec.intermediate_size = 2 * hidden;
  spec.quantization = QuantizationSpec{.double_quant = is_double};
  return spec;
}

// Counts the weights that are read of each parameter, and the most at once.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(const ModelSpec& spec) : values_(spec, 3) {}

  void read(const ParamSlice& part, Tensor out) override {
    counts[part.name] += out.numel();
    largest = std::max(largest, out.numel());
    values_.read(part, std::move(out));
  }

  std::map<std::string, int64_t> counts;
  int64_t largest = 0;

 private:
  RandomSource values_;
};

ModelSpec plain(ModelSpec spec) {
  spec.quantization.reset();
  return spec;
}

std::unique_ptr<WeightSource> source_of(const ModelSpec& spec, torch::Dtype dtype = torch::kFloat) {
  return make_nf4_source(spec, std::make_unique<RandomSource>(plain(spec), 3), dtype);
}

Tensor read(WeightSource& source, const std::string& name, const TensorSlice& box, int64_t first,
            int64_t count) {
  const Tensor bytes = torch::full({count}, 0xee, torch::kByte);
  source.read({name, box, first}, bytes);
  return bytes;
}

Tensor read_all(WeightSource& source, const std::string& name, const Sizes& shape) {
  const TensorSlice box = TensorSlice::full(shape);
  return read(source, name, box, 0, box.elements());
}

// The parameters of bytes of a model on one rank.
std::map<std::string, Sizes> quantized_parameters(const ModelSpec& spec) {
  std::map<std::string, Sizes> shapes;
  for (const auto& block : build_blocks(spec)) {
    for (const auto& item : block->named_parameters()) {
      if (!item.value().is_floating_point())
        shapes[block->label() + "." + item.key()] = item.value().sizes().vec();
    }
  }
  return shapes;
}

}  // namespace

TEST_CASE("any range of codes and scales is that of the whole weight") {
  for (const bool is_double : {false, true}) {
    for (const int64_t hidden : {128, 40}) {
      const ModelSpec spec = wide_spec(is_double, hidden);
      for (const auto& [name, shape] : quantized_parameters(spec)) {
        CAPTURE(name);
        const Tensor whole = read_all(*source_of(spec), name, shape);
        const TensorSlice box = TensorSlice::full(shape);
        const auto source = source_of(spec);
        for (const int64_t first : {int64_t{0}, int64_t{1}, whole.numel() / 3}) {
          for (const int64_t count : {int64_t{1}, whole.numel() / 2}) {
            if (first + count > whole.numel()) continue;
            CHECK(torch::equal(read(*source, name, box, first, count),
                               whole.narrow(0, first, count)));
          }
        }
      }
    }
  }
}

TEST_CASE("slices of rows and of columns have the bytes of the whole weight") {
  for (const bool is_double : {false, true}) {
    const ModelSpec spec = wide_spec(is_double);
    for (const auto& [name, shape] : quantized_parameters(spec)) {
      if (shape.size() == 1) continue;
      CAPTURE(name);
      const Tensor whole = read_all(*source_of(spec), name, shape).view(shape);
      const int64_t rows = shape[0] / 2, columns = shape[1] / 2;
      const auto source = source_of(spec);
      const TensorSlice below{shape, {rows, 0}, {rows, shape[1]}};
      CHECK(torch::equal(read(*source, name, below, 0, below.elements()).view({rows, shape[1]}),
                         whole.narrow(0, rows, rows)));
      const TensorSlice right{shape, {0, columns}, {shape[0], columns}};
      const Tensor part = read(*source, name, right, 0, right.elements());
      CHECK(torch::equal(part.view({shape[0], columns}), whole.narrow(1, columns, columns)));
      CHECK(torch::equal(read(*source, name, right, 5, 58), part.narrow(0, 5, 58)));
    }
  }
}

TEST_CASE("weights are read once, in tiles, and those of a slice alone") {
  const ModelSpec spec = wide_spec(/*is_double=*/false, /*hidden=*/512);
  auto counting = std::make_unique<CountingSource>(plain(spec));
  CountingSource& counts = *counting;
  const auto source = make_nf4_source(spec, std::move(counting), torch::kFloat);
  const std::string up = "layers.0.mlp.up.weight", down = "layers.0.mlp.down.weight";
  const auto shapes = quantized_parameters(spec);
  read_all(*source, up, shapes.at(up));
  read_all(*source, up + "_absmax", shapes.at(up + "_absmax"));
  CHECK(counts.counts[up] == 512 * 1024);
  CHECK(counts.largest == 1 << 16);
  const TensorSlice half{shapes.at(down), {0, 256}, {512, 256}};
  read(*source, down, half, 0, half.elements());
  CHECK(counts.counts[down] == 512 * 512);
}

TEST_CASE("double quantization reads a weight once for its codes and scales") {
  const ModelSpec spec = wide_spec(/*is_double=*/true, /*hidden=*/512);
  auto counting = std::make_unique<CountingSource>(plain(spec));
  CountingSource& counts = *counting;
  const auto source = make_nf4_source(spec, std::move(counting), torch::kFloat);
  const std::string up = "layers.0.mlp.up.weight";
  const auto shapes = quantized_parameters(spec);
  for (const char* suffix : {"", "_absmax", "_nested_absmax"})
    read_all(*source, up + suffix, shapes.at(up + suffix));
  CHECK(counts.counts[up] == 512 * 1024);
}

TEST_CASE("weights are rounded to the precision of the run before they are quantized") {
  const ModelSpec spec = wide_spec(/*is_double=*/false);
  const std::string name = "layers.1.attention.q.weight";
  const Tensor weight = torch::empty({128 * 128});
  RandomSource(plain(spec), 3).read({name, TensorSlice::full({128, 128})}, weight);
  const Tensor codes = torch::empty({128 * 64}, torch::kByte), absmax = torch::empty({256});
  quantize_nf4(weight.to(torch::kBFloat16).to(torch::kFloat), codes, absmax);
  const auto source = source_of(spec, torch::kBFloat16);
  CHECK(torch::equal(read_all(*source, name, {128, 64}), codes));
  CHECK(torch::equal(read_all(*source, name + "_absmax", {128, 8}), absmax.view(torch::kByte)));
}

TEST_CASE("other parameters are read as they are, and shapes are checked") {
  const ModelSpec spec = wide_spec(/*is_double=*/true);
  const auto source = source_of(spec);
  const Tensor norm = torch::empty({128});
  source->read({"layers.0.attention_norm.weight", TensorSlice::full({128})}, norm);
  CHECK(torch::equal(norm, torch::ones({128})));
  const ModelSpec other = wide_spec(/*is_double=*/false, /*hidden=*/64);
  const auto files = make_nf4_source(
      other,
      std::make_unique<CheckpointSource>(fixture("llama"), read_model_spec(fixture("llama"))),
      torch::kFloat);
  CHECK_THROWS_WITH_AS(files->check("layers.0.attention.q.weight", {64, 32}),
                       doctest::Contains("is [16, 16], but config.json requires [64, 64]"), Error);
}

TEST_CASE("files of bitsandbytes give their weights, in slices too") {
  for (const char* name : {"llama_nf4", "llama_nf4_double"}) {
    CAPTURE(name);
    const ModelSpec spec = read_model_spec(fixture(name));
    REQUIRE(spec.quantization.has_value());
    CHECK(spec.quantization->is_stored);
    const auto source = open_weights(fixture(name), spec, 1);
    for (const auto& [parameter, shape] : quantized_parameters(spec)) {
      CAPTURE(parameter);
      source->check(parameter, shape);
      const Tensor whole = read_all(*source, parameter, shape);
      CHECK(torch::equal(read(*source, parameter, TensorSlice::full(shape), 3, 5),
                         whole.narrow(0, 3, 5)));
      if (shape.size() == 1 || shape[1] == 1) continue;
      const TensorSlice right{shape, {0, shape[1] / 2}, {shape[0], shape[1] / 2}};
      const Tensor part = read(*source, parameter, right, 0, right.elements());
      CHECK(torch::equal(part.view({shape[0], shape[1] / 2}),
                         whole.view(shape).narrow(1, shape[1] / 2, shape[1] / 2)));
    }
  }
}

TEST_CASE("what is dequantized is quantized to the same codes and scales") {
  ModelSpec spec = read_model_spec(fixture("llama_nf4"));
  const auto stored = open_weights(fixture("llama_nf4"), spec, 1);
  auto values =
      make_dequantized_source(spec, open_weights(fixture("llama_nf4"), spec, 1), torch::kFloat);
  spec.quantization->is_stored = false;
  for (const auto& [name, shape] : quantized_parameters(spec)) stored->check(name, shape);
  const auto again = make_nf4_source(spec, std::move(values), torch::kFloat);
  // It reads full weights only, and the fixture's are smaller than a tile.
  for (const auto& [name, shape] : quantized_parameters(spec))
    CHECK(torch::equal(read_all(*again, name, shape), read_all(*stored, name, shape)));
}

TEST_CASE("files in another form than config.json says are refused by tensor") {
  ModelSpec spec = read_model_spec(fixture("llama_nf4"));
  const std::string q = "layers.0.attention.q.weight";
  const auto check = [&](const ModelSpec& other, const char* expected) {
    const auto source = open_weights(fixture("llama_nf4"), other, 1);
    CHECK_THROWS_WITH_AS(source->check(q, {128}), doctest::Contains(expected), Error);
  };
  ModelSpec other = spec;
  other.quantization->double_quant = true;
  check(other, "self_attn.q_proj.weight.absmax is F32");
  other = spec;
  other.quantization->dtype = "bfloat16";
  check(other, "dtype is \"float32\", but \"bfloat16\" is required");
  other = spec;
  other.hidden_size = 32;
  check(other, "self_attn.q_proj.weight is U8 of 128 bytes");
  // Files without quantization, and files with it for a model without.
  other = read_model_spec(fixture("llama"));
  other.quantization = spec.quantization;
  const auto plain_files = open_weights(fixture("llama"), other, 1);
  CHECK_THROWS_WITH_AS(plain_files->check(q, {128}),
                       doctest::Contains("self_attn.q_proj.weight is F32"), Error);
  CHECK_THROWS_WITH_AS(CheckpointSource(fixture("llama_nf4"), read_model_spec(fixture("llama"))),
                       doctest::Contains("proj.weight.absmax, which a llama model"), Error);
}

}  // namespace zeroth::model::nf4_source_test
