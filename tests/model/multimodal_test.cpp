#include "model/hf/multimodal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/model_writer.h"
#include "tests/model/materialize.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::multimodal_test {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;
// Dtype, shape and bytes of each tensor of a model's files.
using Files = std::map<std::string, std::tuple<std::string, std::vector<int64_t>, std::string>>;

std::string to_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Files read_files(const fs::path& directory) {
  Files files;
  const SafetensorsDirectory opened(directory);
  for (const auto& [name, entry] : opened.entries()) {
    files[name] = {entry.tensor->dtype, entry.tensor->shape,
                   to_string(entry.file->bytes(*entry.tensor))};
  }
  return files;
}

void write_files(const fs::path& directory, const Files& files) {
  std::string data;
  nlohmann::json header;
  for (const auto& [name, tensor] : files) {
    const auto& [dtype, shape, bytes] = tensor;
    const size_t begin = data.size();
    data += bytes;
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  write_text(directory / "model.safetensors",
             std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

// The name that transformers 5 has in memory, and that some files have.
std::string new_name(const std::string& name) {
  const std::string tower = "language_model.";
  if (!name.starts_with(tower)) return "model." + name;
  const std::string rest = name.substr(tower.size());
  return rest.starts_with("lm_head.") ? rest : "model.language_model." + rest.substr(6);
}

// Copies the fixture's folder, with a tensor of integers, and perhaps with the other names.
void make_model(const fs::path& directory, bool renamed) {
  fs::create_directories(directory);
  for (const char* name : {"config.json", "expected.safetensors"})
    fs::copy_file(fs::path(fixture("mistral3")) / name, directory / name);
  Files named, files = read_files(fixture("mistral3"));
  files["vision_tower.position_ids"] = {"I64", {1, 3}, std::string(24, '\7')};
  for (const auto& [name, tensor] : files) named[renamed ? new_name(name) : name] = tensor;
  write_files(directory, named);
}

Parameters load(const fs::path& directory) {
  const ModelSpec spec = read_model_spec(directory);
  CheckpointSource source(directory, spec);
  return materialize(build_blocks(spec), source);
}

void save(const fs::path& source, const fs::path& output, const Parameters& parameters,
          torch::Dtype dtype, int64_t shard_bytes) {
  std::vector<PlannedTensor> planned;
  for (const auto& [name, tensor] : parameters) planned.push_back({name, tensor.sizes().vec()});
  ModelWriter writer({.source = source,
                      .output = output,
                      .spec = read_model_spec(source),
                      .dtype = dtype,
                      .max_shard_bytes = shard_bytes},
                     planned);
  for (const auto& [name, tensor] : parameters) writer.write(name, tensor);
  writer.commit();
}

bool is_of_language_model(const std::string& name) {
  return name.find("language_model.") != name.npos || name.starts_with("lm_head.");
}

}  // namespace

TEST_CASE("the language model is read and saved, and every other tensor keeps its bytes") {
  for (const bool renamed : {false, true}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      for (const int64_t shard_bytes : {int64_t{1} << 30, int64_t{500}}) {
        const TempFolder directory;
        const fs::path source = directory / "source", output = directory / "out";
        make_model(source, renamed);
        Parameters parameters = load(source);
        CHECK(parameters.size() == 12);
        for (auto& [name, tensor] : parameters) tensor = tensor * 2;
        save(source, output, parameters, dtype, shard_bytes);

        const Files before = read_files(source), after = read_files(output);
        CHECK(before.size() == 12 + 16);
        REQUIRE(after.size() == before.size());
        for (const auto& [name, tensor] : before) {
          REQUIRE_MESSAGE(after.contains(name), name);
          const bool is_same = after.at(name) == tensor;
          CHECK_MESSAGE(is_same == !is_of_language_model(name), name);
          if (!is_of_language_model(name)) continue;
          CHECK(std::get<0>(after.at(name)) == (dtype == torch::kFloat32 ? "F32" : "BF16"));
        }
        // No file holds tensors of both kinds, and the index names all.
        const auto index = nlohmann::json::parse(read_text(output / kIndexFile));
        CHECK(index["weight_map"].size() == after.size());
        std::map<std::string, std::set<bool>> kinds;
        for (const auto& [name, file] : index["weight_map"].items())
          kinds[file].insert(is_of_language_model(name));
        for (const auto& [file, found] : kinds) CHECK_MESSAGE(found.size() == 1, file);
        CHECK((kinds.size() == 2) == (shard_bytes > 500));
        int64_t bytes = 0;
        for (const auto& [name, tensor] : after) bytes += std::ssize(std::get<2>(tensor));
        CHECK(index["metadata"]["total_size"] == bytes);

        auto config = nlohmann::json::parse(read_text(source / "config.json"));
        config["dtype"] = dtype == torch::kFloat32 ? "float32" : "bfloat16";
        CHECK(nlohmann::json::parse(read_text(output / "config.json")) == config);
        const Parameters again = load(output);
        for (const auto& [name, tensor] : parameters)
          CHECK(torch::equal(again.at(name), tensor.to(dtype).to(torch::kFloat)));
      }
    }
  }
}

TEST_CASE("text_config gets the precision and its head, too, where it names them") {
  const TempFolder directory;
  make_model(directory / "source", false);
  auto config = nlohmann::json::parse(read_text(directory / "source/config.json"));
  config["text_config"]["torch_dtype"] = "float32";
  config["quantization_config"] = {{"quant_method", "x"}};
  write_text(directory / "source/config.json", config.dump());
  write_text(directory / "source/preprocessor_config.json", "{}");
  fs::create_directory(directory / "out");
  write_model_metadata(directory / "source", directory / "out", torch::kHalf, {},
                       /*unties_head=*/true);
  config.erase("quantization_config");
  config["dtype"] = config["text_config"]["torch_dtype"] = "float16";
  config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = false;
  CHECK(nlohmann::json::parse(read_text(directory / "out/config.json")) == config);
  CHECK(read_text(directory / "out/preprocessor_config.json") == "{}");
}

TEST_CASE("names in messages and adapters are those in memory, names in files those of the files") {
  for (const bool renamed : {false, true}) {
    const TempFolder directory;
    make_model(directory / "source", renamed);
    const ModelSpec spec = read_model_spec(directory / "source");
    REQUIRE(spec.multimodal);
    CHECK(spec.multimodal->model_type == "mistral3");
    CHECK(spec.multimodal->has_old_names == !renamed);
    REQUIRE(spec.multimodal->others.size() == 16);
    CHECK(spec.multimodal->others.front().dtype == "I64");  // each is aligned in its file
    CHECK(spec.multimodal->others[1].dtype == "F32");
    CHECK(spec.multimodal->others.back().dtype == "BF16");
    CHECK(copied_bytes(spec) ==
          24 + 4 * (16 * 8 + 16 * 16 + 8 + 8 * 32) + 2 * (3 * 8 + 8 * 3 * 64 + 7 * 64));
    const std::string query = "layers.0.attention.q.weight";
    CHECK(stored_name(spec, query) == "model.language_model.layers.0.self_attn.q_proj.weight");
    CHECK(stored_name(spec, "head.weight") == "lm_head.weight");
    const ModelLayout layout = plan_model(spec, torch::kFloat, {{query, {16, 16}}});
    CHECK(layout.locations.at(query).front().tensor.name ==
          (renamed ? stored_name(spec, query)
                   : "language_model.model.layers.0.self_attn.q_proj.weight"));
    CHECK(untrained_tensors(directory / "source", spec) ==
          std::vector<std::string>{
              "not trained, and copied to a saved model: 16 tensors beside the language model"});
  }
}

TEST_CASE("a tensor within the language model that is no parameter of it is refused") {
  const TempFolder directory;
  make_model(directory / "source", false);
  Files files = read_files(directory / "source");
  const std::string extra = "language_model.model.layers.0.mlp.router.weight";
  files[extra] = files.at("language_model.model.norm.weight");
  write_files(directory / "source", files);
  CHECK_THROWS_WITH_AS(load(directory / "source"),
                       doctest::Contains(("holds tensor " + extra + ", which a").c_str()), Error);
  files.erase(extra);
  files.erase("language_model.model.norm.weight");
  write_files(directory / "source", files);
  const ModelSpec spec = read_model_spec(directory / "source");
  CheckpointSource source(directory / "source", spec);
  CHECK_THROWS_WITH_AS(source.check("head.norm.weight", {16}),
                       doctest::Contains("is missing tensor language_model.model.norm.weight"),
                       Error);
}

TEST_CASE("the head is tied as in transformers: by the outer key, unless files hold two tables") {
  const TempFolder directory;
  make_model(directory.path() / "m", false);
  auto config = nlohmann::json::parse(read_text(directory / "m/config.json"));
  const auto is_tied = [&](const nlohmann::json& outer) {
    nlohmann::json changed = config;
    changed.erase("tie_word_embeddings");
    if (!outer.is_null()) changed["tie_word_embeddings"] = outer;
    write_text(directory / "m/config.json", changed.dump());
    return read_model_spec(directory / "m").tie_word_embeddings;
  };
  CHECK_FALSE(is_tied(nullptr));
  CHECK_FALSE(is_tied(true));
  Files files = read_files(directory / "m");
  const std::string head = "language_model.lm_head.weight";
  files[head] = files.at("language_model.model.embed_tokens.weight");
  write_files(directory / "m", files);
  CHECK(is_tied(nullptr));
  CHECK_FALSE(is_tied(false));
  files.erase(head);
  write_files(directory / "m", files);
  CHECK(is_tied(true));
  CHECK(is_tied(nullptr));  // text_config says false
  for (const char* name : {"m/model.safetensors", "m/expected.safetensors"})
    fs::remove(directory / name);
  CHECK(is_tied(nullptr));
  CHECK_FALSE(read_model_spec(directory / "m").multimodal->has_old_names);
}

TEST_CASE("tensors are copied block by block, and a source that has changed is an error") {
  const TempFolder directory;
  Files files;
  files["a"] = {"U8", {5'000'000}, std::string(5'000'000, '\3')};
  files["b"] = {"F8_E4M3", {2}, std::string(2, '\4')};
  files["c"] = {"BF16", {0}, {}};
  write_files(directory.path(), files);
  std::string copied;
  size_t blocks = 0;
  const auto append = [&](std::span<const std::byte> bytes) {
    copied += to_string(bytes);
    ++blocks;
  };
  copy_tensors(directory.path(), {{"b", "F8_E4M3", {2}, 2}, {"a", "U8", {5'000'000}, 5'000'000}},
               append);
  CHECK((copied == std::string(2, '\4') + std::string(5'000'000, '\3')));
  CHECK(blocks == 3);
  copy_tensors(directory.path(), {{"c", "BF16", {0}, 0}}, append);
  copy_tensors(directory / "nowhere", {}, append);
  CHECK(blocks == 3);
  for (const CopiedTensor& other :
       {CopiedTensor{"b", "F8_E4M3", {3}, 3}, {"b", "U8", {2}, 2}, {"d", "U8", {2}, 2}}) {
    CHECK_THROWS_WITH_AS(copy_tensors(directory.path(), {other}, append),
                         doctest::Contains("cannot be copied to the saved model"), Error);
  }
}

}  // namespace zeroth::model::multimodal_test
