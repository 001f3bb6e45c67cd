#include "model/hf/model_layout.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/tensor_slice.h"
#include "model/hf/safetensors_writer.h"
#include "tests/model/stacked_family.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::model_layout_test {
namespace {

ModelSpec llama() {
  ModelSpec spec;
  spec.family = "llama";
  return spec;
}

const std::vector<PlannedTensor> kParameters = {{"embedding.weight", {5, 2}},
                                                {"layers.0.attention.q.weight", {2, 2}},
                                                {"head.norm.weight", {2}}};

}  // namespace

TEST_CASE("a planned file has the bytes that a written one has") {
  const TempFolder directory;
  SafetensorsWriter writer(directory / "x", torch::kBFloat16, {{"a", {2, 3}}, {"b", {}}});
  writer.write("a", torch::ones({2, 3}));
  writer.write("b", torch::ones({}));
  writer.finish();
  const std::string written = read_file((directory / "x").string(), 1 << 20);
  const SafetensorsLayout planned = plan_safetensors(torch::kBFloat16, {{"a", {2, 3}}, {"b", {}}});
  CHECK(planned.size == std::ssize(written));
  CHECK(written.starts_with(planned.header));
  CHECK(planned.offsets.at("a") == std::ssize(planned.header));
  CHECK(planned.offsets.at("b") == std::ssize(planned.header) + 12);
}

TEST_CASE("a tensor that is kept in fp32 is that in a file of 16 bits, bit by bit") {
  const TempFolder directory;
  const std::vector<PlannedTensor> tensors = {{"a", {2}}, {"bias", {2}, /*keep_in_fp32=*/true}};
  const SafetensorsLayout planned = plan_safetensors(torch::kBFloat16, tensors);
  CHECK(planned.size == std::ssize(planned.header) + 4 + 8);
  CHECK(planned.header.find(R"("bias":{"dtype":"F32")") != std::string::npos);
  CHECK(planned.header.find(R"("a":{"dtype":"BF16")") != std::string::npos);
  SafetensorsWriter writer(directory / "x", torch::kBFloat16, tensors);
  const torch::Tensor bias = torch::full({2}, 5.0009765625);
  writer.write("a", torch::ones({2}));
  writer.write("bias", bias);
  writer.finish();
  const std::string written = read_file((directory / "x").string(), 1 << 20);
  CHECK(written.substr(static_cast<size_t>(planned.offsets.at("bias"))) ==
        std::string(static_cast<const char*>(bias.const_data_ptr()), 8));
}

TEST_CASE("a model that fits into one file has no index") {
  const ModelLayout layout = plan_model(llama(), torch::kFloat32, kParameters);
  REQUIRE(layout.files.size() == 1);
  CHECK(layout.files[0].name == "model.safetensors");
  CHECK(layout.index.empty());
  CHECK(layout.bytes() == layout.files[0].layout.size);
  const int64_t begin = std::ssize(layout.files[0].layout.header);
  CHECK(layout.locations.at("embedding.weight").front().offset == begin);
  CHECK(layout.locations.at("layers.0.attention.q.weight").front().offset == begin + 40);
  CHECK(layout.locations.at("head.norm.weight").front().offset == begin + 56);
  CHECK(layout.files[0].tensors[1].name == "model.layers.0.self_attn.q_proj.weight");
}

TEST_CASE("shards end before they grow beyond the limit, and the index names them") {
  const ModelLayout layout = plan_model(llama(), torch::kFloat32, kParameters, 40);
  REQUIRE(layout.files.size() == 2);
  CHECK(layout.files[0].name == "model-00001-of-00002.safetensors");
  CHECK(layout.locations.at("head.norm.weight").front().file == 1);
  CHECK(layout.locations.at("head.norm.weight").front().offset ==
        std::ssize(layout.files[1].layout.header) + 16);
  const auto index = nlohmann::json::parse(layout.index);
  CHECK(index["metadata"]["total_size"] == 64);
  CHECK(index["weight_map"]["model.norm.weight"] == "model-00002-of-00002.safetensors");
  CHECK(index["weight_map"].size() == 3);
  CHECK(layout.bytes() ==
        layout.files[0].layout.size + layout.files[1].layout.size + std::ssize(layout.index));
}

TEST_CASE("a stacked parameter has one location for each stored tensor, in several files") {
  const std::string gate_up = "layers.0.mlp.experts.gate_up";
  const std::vector<PlannedTensor> parameters = {{gate_up, {3, 4, 2}}, {"head.norm.weight", {2}}};
  const ModelLayout layout = plan_model(stacked_family(), torch::kFloat32, parameters, 50);
  REQUIRE(layout.files.size() == 3);
  CHECK(layout.num_tensors() == 7);
  const auto& locations = layout.locations.at(gate_up);
  REQUIRE(locations.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    const auto& [file, offset, tensor] = locations[i];
    CHECK(file == i / 3);
    CHECK(offset ==
          std::ssize(layout.files[file].layout.header) + static_cast<int64_t>(i % 3) * 16);
    CHECK(tensor.name == fmt::format("model.layers.0.block_sparse_moe.experts.{}.w{}.weight", i / 2,
                                     i % 2 == 0 ? 1 : 3));
    CHECK(tensor.shape == std::vector<int64_t>{2, 2});
  }
  const auto index = nlohmann::json::parse(layout.index);
  CHECK(index["metadata"]["total_size"] == 104);
  CHECK(index["weight_map"].size() == 7);
  CHECK(index["weight_map"]["model.layers.0.block_sparse_moe.experts.1.w3.weight"] ==
        "model-00002-of-00003.safetensors");
}

TEST_CASE("descriptions take over the dtype, and name what is wrong") {
  const TempFolder directory;
  std::ofstream(directory / "config.json")
      << R"({"model_type": "llama", "torch_dtype": "float32"})";
  std::filesystem::create_directory(directory / "out");
  write_model_metadata(directory.path(), directory / "out", torch::kBFloat16);
  const auto config =
      nlohmann::json::parse(read_file((directory / "out/config.json").string(), 1 << 20));
  CHECK(config == nlohmann::json{{"model_type", "llama"}, {"torch_dtype", "bfloat16"}});
  CHECK_THROWS_WITH_AS(
      write_model_metadata(directory.path(), directory / "nowhere", torch::kFloat32),
      doctest::Contains("cannot be written: No such file or directory"), Error);
}

TEST_CASE("what is saved has a word, and comes back by it in its size") {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    CHECK(parse_dtype(dtype_name(dtype)) == dtype);
    CHECK(element_size(dtype_name(dtype)) == static_cast<int64_t>(c10::elementSize(dtype)));
  }
  CHECK(dtype_name(torch::kBFloat16) == "BF16");
  CHECK(!parse_dtype("F64"));
  CHECK(!parse_dtype("float32"));
  CHECK_THROWS_AS((void)dtype_name(torch::kInt64), InternalError);
}

}  // namespace zeroth::model::model_layout_test
