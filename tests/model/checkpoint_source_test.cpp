#include "model/hf/checkpoint_source.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/safetensors_writer.h"
#include "tests/model/materialize.h"
#include "tests/model/stacked_family.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::checkpoint_source_test {
namespace {

using torch::Tensor;
using Stored = std::map<std::string, Tensor>;

ModelSpec llama(bool tied = false) {
  ModelSpec spec;
  spec.family = "llama";
  spec.tie_word_embeddings = tied;
  spec.num_layers = 2;
  return spec;
}

void save(const std::filesystem::path& directory, const Stored& tensors,
          torch::ScalarType dtype = torch::kFloat32) {
  std::vector<PlannedTensor> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.sizes().vec()});
  SafetensorsWriter writer(directory / "model.safetensors", dtype, plan);
  for (const auto& [name, tensor] : tensors) writer.write(name, tensor);
  writer.finish();
}

}  // namespace

TEST_CASE("a range is read, converted, without the rest of the tensor") {
  const TempFolder directory;
  const Tensor weight = torch::randn({600, 1000});  // more than one chunk
  for (const auto dtype : {torch::kFloat32, torch::kFloat16, torch::kBFloat16}) {
    save(directory.path(), {{"model.norm.weight", weight}}, dtype);
    CheckpointSource source(directory.path(), llama());
    source.check("head.norm.weight", {600, 1000});
    Tensor out = torch::empty({590'000});
    source.read({"head.norm.weight", TensorSlice::full({600, 1000}), 5000}, out);
    CHECK(
        torch::equal(out, weight.to(dtype).to(torch::kFloat32).view(-1).narrow(0, 5000, 590'000)));
    Tensor narrow = torch::empty({3}, torch::kBFloat16);
    source.read({"head.norm.weight", TensorSlice::full({600, 1000}), 599'997}, narrow);
    CHECK(
        torch::equal(narrow, weight.view(-1).narrow(0, 599'997, 3).to(dtype).to(torch::kBFloat16)));
  }
}

// The box of a matrix, as it stands in memory.
Tensor slice_of(const Tensor& matrix, const TensorSlice& box) {
  return matrix.narrow(0, box.offsets[0], box.sizes[0])
      .narrow(1, box.offsets[1], box.sizes[1])
      .reshape(-1);
}

TEST_CASE("a box of a matrix is read, from any element on, and nothing beside it") {
  const TempFolder directory;
  constexpr int64_t kRows = 701, kColumns = 1500;
  const std::vector<TensorSlice> slices = {
      {{kRows, kColumns}, {0, 0}, {351, kColumns}},    // rows: an uneven half of a vocabulary
      {{kRows, kColumns}, {351, 0}, {350, kColumns}},  // and the other one
      {{kRows, kColumns}, {0, 750}, {kRows, 750}},     // columns, more than one chunk
      {{kRows, kColumns}, {0, 500}, {kRows, 1}},       // one of them
      {{kRows, kColumns}, {100, 1499}, {600, 1}}};
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    for (const TensorSlice& box : slices) {
      Tensor weight = torch::randn({kRows, kColumns});
      const Tensor expected = slice_of(weight.to(dtype).to(torch::kFloat32), box);
      const Tensor outside = torch::ones({kRows, kColumns}, torch::kBool);
      outside.narrow(0, box.offsets[0], box.sizes[0])
          .narrow(1, box.offsets[1], box.sizes[1])
          .fill_(false);
      weight.masked_fill_(outside, std::nanf(""));  // an Error, were it read
      save(directory.path(), {{"model.norm.weight", weight}}, dtype);
      CheckpointSource source(directory.path(), llama());
      source.check("head.norm.weight", {kRows, kColumns});
      for (const int64_t first : {int64_t{0}, int64_t{333}, box.elements() - 1}) {
        for (const int64_t count : {box.elements() - first, int64_t{1}}) {
          const Tensor out = torch::empty({count});
          source.read({"head.norm.weight", box, first}, out);
          CHECK(torch::equal(out, expected.narrow(0, first, count)));
        }
      }
    }
  }
}

TEST_CASE("GPT-2's queries, keys and values are boxes of one matrix and one bias") {
  const TempFolder directory;
  ModelSpec spec = llama();
  spec.family = "gpt2";
  const Tensor weight = torch::randn({64, 192}), bias = torch::randn({192});
  const std::string in_file = "transformer.h.0.attn.c_attn.";
  save(directory.path(), {{in_file + "weight", weight}, {in_file + "bias", bias}});
  spec.conv1d = spec.qkv_bias = true;
  spec.qkv_layout = QkvLayout::kStacked;
  CheckpointSource source(directory.path(), spec);
  for (const int64_t begin : {32, 96, 160}) {  // of the second of two ranks
    const Tensor out = torch::empty({64 * 32}), of_bias = torch::empty({32});
    source.read({"layers.0.attention.qkv.weight", {{64, 192}, {0, begin}, {64, 32}}}, out);
    CHECK(torch::equal(out.view({64, 32}), weight.narrow(1, begin, 32)));
    source.read({"layers.0.attention.qkv.bias", {{192}, {begin}, {32}}}, of_bias);
    CHECK(torch::equal(of_bias, bias.narrow(0, begin, 32)));
  }
}

TEST_CASE("missing and misshaped tensors are named as the file names them") {
  const TempFolder directory;
  save(directory.path(), {{"model.layers.1.mlp.up_proj.weight", torch::zeros({4, 3})}});
  CheckpointSource source(directory.path(), llama());
  const std::string missing = message_of<Error>([&] {
    source.check("layers.0.mlp.up.weight", {4, 3});
  });
  CHECK(missing.find("is missing tensor model.layers.0.mlp.up_proj.weight") != std::string::npos);
  const std::string shape = message_of<Error>([&] {
    source.check("layers.1.mlp.up.weight", {3, 4});
  });
  CHECK(shape.find("tensor model.layers.1.mlp.up_proj.weight is [4, 3], but config.json requires "
                   "[3, 4]") != std::string::npos);
}

TEST_CASE("NaN, infinity and what a narrow precision cannot hold are refused where they are read") {
  const TempFolder directory;
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf, -inf, 1e6F}) {
    Tensor weight = torch::zeros({8});
    weight[5] = bad;
    save(directory.path(), {{"model.norm.weight", weight}});
    CheckpointSource source(directory.path(), llama());
    Tensor out = torch::empty({8}, torch::kFloat16);
    const ParamSlice part{"head.norm.weight", TensorSlice::full({8})};
    const std::string said = message_of<Error>([&] { source.read(part, out); });
    CHECK(said.find("tensor model.norm.weight has a value that is NaN") != std::string::npos);
    Tensor before = torch::empty({5}, torch::kFloat16);
    CHECK_NOTHROW(source.read(part, before));
  }
}

TEST_CASE("a tensor that the model does not have is named, old buffers are not") {
  const TempFolder directory;
  for (const char* name : {"score.weight", "model.layers.2.mlp.up_proj.weight",
                           "model.layers.0.self_attn.q_proj.bias"}) {
    save(directory.path(), {{name, torch::zeros({2})}});
    const std::string said =
        message_of<Error>([&] { CheckpointSource source(directory.path(), llama()); });
    CHECK_MESSAGE(
        said.find(fmt::format("holds tensor {}, which a llama model", name)) != std::string::npos,
        said);
  }
  save(directory.path(), {{"model.layers.0.self_attn.rotary_emb.inv_freq", torch::zeros({2})}});
  CHECK_NOTHROW(CheckpointSource(directory.path(), llama()));
}

TEST_CASE("a tied weight is found under either name") {
  const TempFolder directory;
  const Tensor table = torch::randn({4, 2});
  for (const Stored& stored :
       {Stored{{"lm_head.weight", table}}, Stored{{"model.embed_tokens.weight", table}},
        Stored{{"lm_head.weight", table}, {"model.embed_tokens.weight", table}}}) {
    save(directory.path(), stored);
    CheckpointSource source(directory.path(), llama(true));
    Tensor out = torch::empty({8});
    source.check("embedding.weight", {4, 2});
    source.read({"embedding.weight", TensorSlice::full({4, 2})}, out);
    CHECK(torch::equal(out.view({4, 2}), table));
  }
  save(directory.path(), {{"model.embed_tokens.weight", table}});
  CheckpointSource untied(directory.path(), llama());
  CHECK(message_of<Error>([&] {
          untied.check("head.weight", {4, 2});
        }).find("lm_head.weight") != std::string::npos);
}

TEST_CASE("integers are refused by name where a parameter needs them") {
  const TempFolder directory;
  const std::string header =
      R"({"model.norm.weight":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  const uint64_t length = header.size();
  write_text(directory.path() / "model.safetensors",
             std::string(reinterpret_cast<const char*>(&length), 8) + header + "abcd");
  CheckpointSource source(directory.path(), llama());
  CHECK(message_of<Error>([&] {
          source.check("head.norm.weight", {1});
        }).find("tensor model.norm.weight is I32; supported are F32, F16, BF16") !=
        std::string::npos);
}

const std::string kGateUp = "layers.0.mlp.experts.gate_up";
const std::string kNorms = "layers.0.attention.q_norm.weight";

std::string expert(int64_t index, const std::string& matrix) {
  return fmt::format("model.layers.0.block_sparse_moe.experts.{}.{}.weight", index, matrix);
}

// What files hold of gate_up [E, 2I, h] and of q_norm [heads, d].
Stored unstacked(const Tensor& gate_up, const Tensor& norms) {
  Stored stored;
  for (int64_t i = 0; i < gate_up.size(0); ++i) {
    stored[expert(i, "w1")] = gate_up[i].chunk(2)[0];
    stored[expert(i, "w3")] = gate_up[i].chunk(2)[1];
  }
  for (int64_t i = 0; i < norms.size(0); ++i)
    stored[fmt::format("model.layers.0.self_attn.q_layernorm.norms.{}.weight", i)] = norms[i];
  return stored;
}

CheckpointSource stacked_source(const std::filesystem::path& directory) {
  return {directory, llama(), stacked_family(), {kGateUp, kNorms}};
}

// All slices of a tensor of this shape.
std::vector<TensorSlice> all_slices(const std::vector<int64_t>& shape) {
  std::vector<TensorSlice> slices = {{shape, {}, {}}};
  for (const int64_t extent : shape) {
    std::vector<TensorSlice> longer;
    for (const TensorSlice& slice : slices) {
      for (int64_t begin = 0; begin < extent; ++begin) {
        for (int64_t size = 1; begin + size <= extent; ++size) {
          longer.push_back(slice);
          longer.back().offsets.push_back(begin);
          longer.back().sizes.push_back(size);
        }
      }
    }
    slices = std::move(longer);
  }
  return slices;
}

TEST_CASE("a stacked parameter is read from its entries' tensors, any part of any box") {
  const TempFolder directory;
  const std::map<std::string, Tensor> parameters = {{kGateUp, torch::randn({3, 4, 3})},
                                                    {kNorms, torch::randn({3, 5})}};
  const Stored fused = {
      {"model.layers.0.mlp.experts.gate_up_proj", parameters.at(kGateUp)},
      {"layers.0.self_attn.q_layernorm.weight", parameters.at(kNorms)}};  // without the prefix
  for (const Stored& stored : {unstacked(parameters.at(kGateUp), parameters.at(kNorms)), fused}) {
    save(directory.path(), stored);
    CheckpointSource source = stacked_source(directory.path());
    for (const auto& [name, parameter] : parameters) {
      const std::vector<int64_t> shape = parameter.sizes().vec();
      source.check(name, shape);
      for (const TensorSlice& box : all_slices(shape)) {
        Tensor expected = parameter;
        for (int64_t i = 0; i < parameter.dim(); ++i)
          expected = expected.narrow(i, box.offsets[i], box.sizes[i]);
        expected = expected.reshape(-1);
        for (int64_t first = 0; first < expected.numel(); ++first) {
          for (int64_t count = 1; first + count <= expected.numel(); count += count) {
            const Tensor out = torch::full({count}, std::nanf(""));
            source.read({name, box, first}, out);
            REQUIRE(torch::equal(out, expected.narrow(0, first, count)));
          }
        }
      }
    }
  }
}

TEST_CASE("large entries of other precisions are read, and a value that is no use is named") {
  const TempFolder directory;
  Tensor gate_up = torch::randn({2, 8, 50'000});  // a part has less than a chunk, the whole more
  gate_up[1][5][7] = std::nanf("");
  const std::vector<int64_t> shape = gate_up.sizes().vec();
  save(directory.path(), unstacked(gate_up, torch::randn({2, 4})), torch::kBFloat16);
  CheckpointSource source = stacked_source(directory.path());
  source.check(kGateUp, shape);
  const Tensor expected = gate_up.to(torch::kBFloat16).to(torch::kFloat).view(-1);
  const Tensor before = torch::empty({650'000 - 9}), all = torch::empty({800'000});
  source.read({kGateUp, TensorSlice::full(shape), 2}, before);
  CHECK(torch::equal(before, expected.narrow(0, 2, before.numel())));
  const std::string said = message_of<Error>([&] {
    source.read({kGateUp, TensorSlice::full(shape)}, all);
  });
  CHECK_MESSAGE(said.find("tensor " + expert(1, "w3") + " has a value that is NaN") != said.npos,
                said);
}

TEST_CASE("missing, misshaped, superfluous and repeated pieces of a parameter are named") {
  const TempFolder directory;
  const Tensor gate_up = torch::randn({3, 4, 3}), norms = torch::randn({3, 5});
  const Stored stored = unstacked(gate_up, norms);
  const auto said_of = [&](const Stored& tensors) {
    save(directory.path(), tensors);
    return message_of<Error>([&] {
      CheckpointSource source = stacked_source(directory.path());
      source.check(kGateUp, {3, 4, 3});
      source.check(kNorms, {3, 5});
    });
  };
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    Stored changed = stored;
    changed[name] = tensor;
    return said_of(changed);
  };
  const auto without = [&](const std::string& name) {
    Stored changed = stored;
    changed.erase(name);
    return said_of(changed);
  };
  const std::string root = directory.path().string();
  CHECK(said_of(stored) == "no exception");
  CHECK(without(expert(1, "w3")) == root + " is missing tensor " + expert(1, "w3"));
  CHECK(without(expert(2, "w3")) == root + " is missing tensor " + expert(2, "w3"));
  CHECK(said_of(unstacked(gate_up.narrow(0, 0, 2), norms)) ==
        root + " is missing tensor " + expert(2, "w1"));
  CHECK(said_of(unstacked(gate_up.narrow(0, 0, 0), norms)) ==
        root + " is missing tensor " + expert(0, "w1"));
  const std::string head = "model.layers.0.self_attn.q_layernorm.norms.";
  CHECK(without(head + "0.weight") == root + " is missing tensor " + head + "0.weight");
  CHECK(with(expert(1, "w1"), torch::zeros({3, 2})) ==
        root + "/model.safetensors: tensor " + expert(1, "w1") +
            " is [3, 2], but config.json requires [2, 3]");
  CHECK(with(head + "2.weight", torch::zeros({1, 5})) ==
        root + "/model.safetensors: tensor " + head +
            "2.weight is [1, 5], but config.json requires [5]");
  const std::string refused = ", which a llama model of this config.json does not have";
  for (const std::string& name : {expert(3, "w1"), expert(7, "w3"), head + "3.weight",
                                  expert(0, "w2"), expert(0, "w4"), head + "00.weight"}) {
    CHECK(with(name, torch::zeros({2, 3})) ==
          root + "/model.safetensors holds tensor " + name + refused);
  }
  const std::string fused = "model.layers.0.mlp.experts.gate_up_proj";
  CHECK(with(fused, gate_up) ==
        root + " holds " + expert(0, "w1") + " and " + fused + ", which are the same parameter");
  const std::string bare = expert(0, "w1").substr(6);
  CHECK(with(bare, gate_up[0].chunk(2)[0]) ==
        root + " holds " + bare + " and " + expert(0, "w1") + ", which are the same parameter");
}

TEST_CASE("tensors that transformers skips are counted, and nothing else of the files is") {
  const TempFolder directory;
  const Family family = stacked_family();
  Stored stored = unstacked(torch::randn({2, 4, 3}), torch::randn({2, 5}));
  save(directory.path(), stored);
  CHECK(untrained_tensors(directory.path(), llama(), family).empty());
  stored["model.layers.2.self_attn.rotary_emb.inv_freq"] = torch::zeros({2});
  stored["model.layers.2.eh_proj.weight"] = torch::zeros({2});
  stored["model.layers.3.mlp.experts.gate_up_proj"] = torch::full({2}, std::nanf(""));
  stored["mtp.norm.weight"] = torch::zeros({2});
  save(directory.path(), stored);
  CHECK_NOTHROW(stacked_source(directory.path()).check(kGateUp, {2, 4, 3}));
  CHECK(untrained_tensors(directory.path(), llama(), family) ==
        std::vector<std::string>{"skipped, as in transformers, and neither trained nor saved: 2 "
                                 "tensors model.layers.2.*, 1 tensor model.layers.3.*, 1 tensor "
                                 "mtp.*"});
  CHECK(untrained_tensors(directory.path(), llama()).empty());
  CHECK(untrained_tensors(directory / "nothing", llama()).empty());
  stored["model.layers.1.eh_proj.weight"] = torch::zeros({2});
  save(directory.path(), stored);
  CHECK_THROWS_WITH_AS(
      stacked_source(directory.path()),
      doctest::Contains("holds tensor model.layers.1.eh_proj.weight, which a llama model"), Error);
}

TEST_CASE("a folder without weights starts from random ones") {
  const TempFolder directory;
  ModelSpec spec = llama();
  const auto source = open_weights(directory.path(), spec, 7);
  Tensor out = torch::zeros({16});
  source->read({"layers.0.mlp.up.weight", TensorSlice::full({16})}, out);
  CHECK(out.abs().min().item<float>() > 0);
}

}  // namespace zeroth::model::checkpoint_source_test
