#include "model/hf/model_writer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/model/materialize.h"
#include "tests/model/stacked_family.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::model_writer_test {
namespace {

namespace fs = std::filesystem;

Parameters load(const fs::path& directory) {
  const ModelSpec spec = read_model_spec(directory);
  CheckpointSource source(directory, spec);
  return materialize(build_blocks(spec), source);
}

std::vector<PlannedTensor> plan(const Parameters& parameters) {
  std::vector<PlannedTensor> entries;
  for (const auto& [name, tensor] : parameters) entries.push_back({name, tensor.sizes().vec()});
  return entries;
}

void save(const WriterOptions& options, const Parameters& parameters) {
  ModelWriter writer(options, plan(parameters));
  for (const auto& [name, tensor] : parameters) writer.write(name, tensor);
  writer.commit();
}

WriterOptions options(const std::string& source, const fs::path& output) {
  WriterOptions result;
  result.source = fixture(source);
  result.output = output;
  result.spec = read_model_spec(fixture(source));
  return result;
}

}  // namespace

TEST_CASE("a saved model loads bit-equal, whole or in shards, tied weights once") {
  for (const std::string name : {"qwen3_tied", "gpt2_no_prefix", "llama_head_dim"}) {
    for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{5000}}) {
      CAPTURE(name);
      const TempFolder directory;
      const Parameters parameters = load(fixture(name));
      WriterOptions wanted = options(name, directory.path() / "out/model");
      wanted.max_shard_bytes = shard_bytes;
      save(wanted, parameters);
      const bool sharded = fs::exists(wanted.output / "model.safetensors.index.json");
      CHECK(sharded == (shard_bytes == 5000));
      const Parameters again = load(wanted.output);
      CHECK(again.size() == parameters.size());
      for (const auto& [key, tensor] : parameters) CHECK(torch::equal(again.at(key), tensor));
      CHECK(std::distance(fs::directory_iterator(wanted.output.parent_path()), {}) == 1);
    }
  }
}

TEST_CASE("config.json names the saved precision and keeps the rest") {
  const TempFolder directory;
  WriterOptions wanted = options("llama", directory.path() / "out");
  wanted.dtype = torch::kBFloat16;
  save(wanted, load(fixture("llama")));
  auto expected = nlohmann::json::parse(read_text(fixture("llama") + "/config.json"));
  expected["dtype"] = "bfloat16";
  CHECK(nlohmann::json::parse(read_text(wanted.output / "config.json")) == expected);
  const SafetensorsFile file(wanted.output / "model.safetensors");
  CHECK(file.tensors().at("lm_head.weight").dtype == "BF16");
}

TEST_CASE("tokenizer and templates are copied, weights of the source are not") {
  const TempFolder directory;
  const fs::path source = directory.path() / "source";
  fs::copy(fixture("llama"), source);
  write_text(source / "tokenizer.json", "{}");
  write_text(source / "chat_template.jinja", "hi");
  write_text(source / "merges.txt", "a b");
  write_text(source / "pytorch_model.bin", "x");
  WriterOptions wanted = options("llama", directory.path() / "out");
  wanted.source = source;
  save(wanted, load(fixture("llama")));
  CHECK(read_text(wanted.output / "tokenizer.json") == "{}");
  CHECK(read_text(wanted.output / "chat_template.jinja") == "hi");
  CHECK(fs::exists(wanted.output / "merges.txt"));
  CHECK_FALSE(fs::exists(wanted.output / "pytorch_model.bin"));
  CHECK_FALSE(fs::exists(wanted.output / "expected.safetensors"));
}

TEST_CASE("two writers, as on two ranks, write one model") {
  for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{5000}}) {
    const TempFolder directory;
    const Parameters parameters = load(fixture("llama"));
    WriterOptions wanted = options("llama", directory.path() / "out");
    wanted.max_shard_bytes = shard_bytes;
    ModelWriter first(wanted, plan(parameters));
    ModelWriter second(first.directory(), wanted, plan(parameters));
    int64_t index = 0, of_second = 0;
    for (const auto& [name, tensor] : parameters) {
      const bool is_second = ++index % 3 == 0;
      (is_second ? second : first).write(name, tensor);
      of_second += is_second ? 1 : 0;
    }
    CHECK(second.finish() == of_second);
    if (shard_bytes == 5000) {
      CHECK_THROWS_AS(first.commit({}, of_second - 1), InternalError);
      continue;
    }
    first.commit({}, of_second);
    const Parameters again = load(wanted.output);
    CHECK(again.size() == parameters.size());
    for (const auto& [key, tensor] : parameters) CHECK(torch::equal(again.at(key), tensor));
  }
}

TEST_CASE("a stacked parameter is written as its entries' tensors, in one file or several") {
  const Parameters parameters = {{"layers.0.mlp.experts.gate_up", torch::randn({3, 4, 5})},
                                 {"layers.0.mlp.experts.down", torch::randn({3, 5, 2})},
                                 {"layers.0.attention.q_norm.weight", torch::randn({5, 3}).t()},
                                 {"head.norm.weight", torch::randn({5})}};
  std::set<std::string> names;
  for (const auto& [name, tensor] : parameters) names.insert(name);
  const Family family = stacked_family();
  for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{100}}) {
    const TempFolder directory;
    WriterOptions wanted = options("llama", directory.path() / "out");
    wanted.family = &family;
    wanted.max_shard_bytes = shard_bytes;
    save(wanted, parameters);
    const SafetensorsDirectory files(wanted.output);
    CHECK(files.entries().size() == 6 + 3 + 3 + 1);
    CHECK(files.entries().contains("model.layers.0.block_sparse_moe.experts.2.w3.weight"));
    CheckpointSource source(wanted.output, wanted.spec, family, names);
    for (const auto& [name, tensor] : parameters) {
      const std::vector<int64_t> shape = tensor.sizes().vec();
      source.check(name, shape);
      const torch::Tensor read = torch::empty({tensor.numel()});
      source.read({name, TensorSlice::full(shape)}, read);
      CHECK(torch::equal(read.view(shape), tensor));
    }
  }
}

TEST_CASE("without commit nothing stays") {
  const TempFolder directory;
  {
    const Parameters parameters = load(fixture("llama"));
    ModelWriter writer(options("llama", directory.path() / "out"), plan(parameters));
    CHECK_FALSE(fs::exists(directory.path() / "out"));
    CHECK_THROWS_AS(writer.commit(), InternalError);  // nothing was written
  }
  CHECK(fs::is_empty(directory.path()));
}

}  // namespace zeroth::model::model_writer_test
