#include "launcher/commands/export_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/launcher/saved_model.h"
#include "tests/trainer/disk.h"

namespace zeroth::launcher::export_model_test {
namespace {

namespace fs = std::filesystem;

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// The tensors of a safetensors file, whose bytes follow each other without a gap.
std::map<std::string, Tensor> tensors_in(const fs::path& path) {
  const std::string text = read_text(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  CHECK(length % 8 == 0);
  const auto header = parse_json(text.substr(8, length), {.name = path.string()});
  CHECK(header["__metadata__"]["format"] == "pt");
  std::map<std::string, Tensor> tensors;
  size_t bytes = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = {entry["dtype"], entry["shape"].get<std::vector<int64_t>>(),
                     text.substr(8 + length + begin, end - begin)};
    bytes += end - begin;
  }
  CHECK(text.size() == 8 + length + bytes);
  return tensors;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string complaint(const ExportRequest& request) {
  return message_of<Error>([&] { (void)export_model(request); });
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("an exported model has the masters of the newest checkpoint, and its files beside them") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 4, model_of(100));
  save_model(directory / "out/checkpoints", 8, model_of(0.1F));
  for (const char* from : {"out", "out/checkpoints", "out/checkpoints/step-8"}) {
    const ExportResult done =
        export_model({.from = directory / from, .to = directory / "hf", .overwrite = true});
    CHECK(done.tensors == 4);
    CHECK(done.bytes == 4 * (24 + 5 + 5 + 1));
    CHECK(done.from.filename() == "step-8");
    CHECK(done.copied == Names{"config.json", "tokenizer.json"});
    CHECK(names_in(directory / "hf") ==
          Names{"config.json", "model.safetensors", "tokenizer.json"});
    const auto tensors = tensors_in(directory / "hf/model.safetensors");
    REQUIRE(tensors.size() == 4);
    for (const SavedTensor& saved : model_of(0.1F)) {
      CHECK(tensors.at(saved.name).dtype == "F32");
      CHECK(tensors.at(saved.name).shape == saved.shape);
      CHECK(floats_of(tensors.at(saved.name)) == saved.values);
    }
    CHECK(read_text(directory / "hf/tokenizer.json") == "{\"model\": 1}");
    CHECK(read_text(directory / "hf/config.json") ==
          "{\n  \"model_type\": \"llama\",\n  \"torch_dtype\": \"float32\",\n  \"vocab_size\": "
          "6\n}\n");
  }
  const ExportResult older =
      export_model({.from = directory / "out/checkpoints/step-4", .to = directory / "old"});
  CHECK(older.from.filename() == "step-4");
  CHECK(floats_of(tensors_in(directory / "old/model.safetensors").at("scale")) ==
        std::vector<float>{100});
  CHECK(names_in(directory.path()) == Names{"hf", "old", "out"});
}

TEST_CASE("an exported model is rounded to the nearest, and its config.json says so") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(0.1F));
  (void)export_model({.from = directory / "out", .to = directory / "hf", .dtype = Dtype::kBf16});
  const auto tensors = tensors_in(directory / "hf/model.safetensors");
  CHECK(tensors.at("scale").dtype == "BF16");
  CHECK(tensors.at("scale").bytes == "\xcd\x3d");
  CHECK(tensors.at("lm_head.weight").bytes.size() == 48);
  const auto config = parse_json(read_text(directory / "hf/config.json"), {.name = "config.json"});
  CHECK(config["torch_dtype"] == "bfloat16");
}

TEST_CASE("weights beyond the size of a file go to several, with an index") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(1));
  (void)export_model({.from = directory / "out", .to = directory / "hf", .max_shard_bytes = 44});
  const auto index =
      parse_json(read_text(directory / "hf/model.safetensors.index.json"), {.name = "i"});
  CHECK(index["metadata"]["total_size"] == 140);
  const auto& map = index["weight_map"];
  REQUIRE(map.size() == 4);
  CHECK(map["layers.0.weight"] == "model-00001-of-00003.safetensors");
  CHECK(map["layers.1.weight"] == "model-00001-of-00003.safetensors");
  CHECK(map["lm_head.weight"] == "model-00002-of-00003.safetensors");
  CHECK(map["scale"] == "model-00003-of-00003.safetensors");
  for (const auto& [name, file] : map.items()) {
    CHECK(tensors_in(directory / ("hf/" + file.get<std::string>())).contains(name));
  }
}

TEST_CASE("a tensor larger than what is in memory at a time is whole") {
  const TempFolder directory;
  std::vector<float> values((size_t{1} << 20) + 17);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  SavedTensor large{"w", "master", {std::ssize(values)}, values};
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory / "out/checkpoints"), one,
                          {.run_id = "run"});
  checkpoint::Save save = saver.begin(8, 1000);
  checkpoint::RankManifest mine;
  save.run_phase("writing", [&] {
    checkpoint::ChunkFile file =
        save.chunk_file({checkpoint::TensorChunk::full("w", "master", "F32", large.shape)});
    file.write(0, std::as_bytes(std::span(values)));
    mine.files.push_back(file.finish(save.chunk_file_name()));
  });
  (void)save.commit(mine, {});
  const ExportResult done = export_model({.from = directory / "out", .to = directory / "hf"});
  CHECK(done.copied.empty());
  CHECK(floats_of(tensors_in(directory / "hf/model.safetensors").at("w")) == values);
}

TEST_CASE("what no model can hold is named with its tensor, and nothing is left") {
  const TempFolder directory;
  const auto with = [&](float value) {
    fs::remove_all(directory / "out");
    std::vector<SavedTensor> model = model_of(1);
    model[2].values[4] = value;
    save_model(directory / "out/checkpoints", 8, model);
  };
  with(70000);
  CHECK(complaint({.from = directory / "out", .to = directory / "hf", .dtype = Dtype::kF16}) ==
        "layers.1.weight has a value of 70000, out of range for fp16: export in bf16 or fp32");
  CHECK(complaint({.from = directory / "out", .to = directory / "hf", .dtype = Dtype::kBf16}) ==
        "no exception");
  fs::remove_all(directory / "hf");
  with(-NAN);
  CHECK(complaint({.from = directory / "out", .to = directory / "hf"}) ==
        "layers.1.weight holds nan: such a model is not exported");
  CHECK(names_in(directory.path()) == Names{"out"});
}

TEST_CASE("a checkpoint that is damaged or none is refused, and nothing is left") {
  const TempFolder directory;
  CHECK(complaint({.from = directory / "none", .to = directory / "hf"}) ==
        (directory / "none").string() + ": there is no such folder");
  fs::create_directories(directory / "out/checkpoints");
  CHECK(complaint({.from = directory / "out", .to = directory / "hf"}) ==
        (directory / "out/checkpoints").string() + " holds no complete checkpoint");
  save_model(directory / "out/checkpoints", 8, model_of(1));
  const auto change = [&](const std::string& name) {
    const fs::path path = directory / ("out/checkpoints/step-8/" + name);
    std::string bytes = read_text(path);
    const std::string before = bytes;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_text(path, bytes);
    return before;
  };
  const std::string config = change("config.json");
  CHECK(complaint({.from = directory / "out", .to = directory / "hf"})
            .find("config.json is damaged: crc32c ") != std::string::npos);
  write_text(directory / "out/checkpoints/step-8/config.json", config);
  (void)change("zeroth/pieces-00000.safetensors");
  CHECK(complaint({.from = directory / "out", .to = directory / "hf"}).find("is damaged: crc32c") !=
        std::string::npos);
  CHECK(names_in(directory.path()) == Names{"out"});
}

TEST_CASE("a disk that has no room for a model stays as it was") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8,
             {{"w", "master", {50'000}, std::vector<float>(50'000)}});
  const trainer::MountedDisk disk(directory / "disk", "size=100k");
  if (!disk.mounted()) return;
  CHECK(complaint({.from = directory / "out", .to = directory / "disk/hf"})
            .find("No space left on device") != std::string::npos);
  CHECK(names_in(directory / "disk").empty());
  CHECK(export_model({.from = directory / "out", .to = directory / "hf"}).bytes == 200'000);
  disk.make_read_only();
  CHECK(complaint({.from = directory / "out", .to = directory / "disk/hf"})
            .find("Read-only file system") != std::string::npos);
}

TEST_CASE(
    "the states of a multimodal model's checkpoint are not exported without its other parts") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(1),
             R"({"model_type": "mistral3", "text_config": {"model_type": "mistral"}})");
  const std::string said = complaint({.from = directory / "out", .to = directory / "hf"});
  CHECK(said.starts_with((directory / "out/checkpoints/step-8/config.json").string() +
                         ": the checkpoint's states are those of the language model alone"));
  CHECK(names_in(directory.path()) == Names{"out"});
}

TEST_CASE("a checkpoint without states is none to export") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, {});
  const std::string path = (directory / "out/checkpoints/step-8").string();
  CHECK(complaint({.from = path, .to = directory / "hf"}) ==
        path + " contains no states: if it is a model, transformers can load it as it is");
}

TEST_CASE("a tensor of which neither masters nor weights are stored is named") {
  const TempFolder directory;
  std::vector<SavedTensor> model = model_of(1);
  model.push_back({"ghost", "exp_avg_sq", {2}, {1, 2}});
  save_model(directory / "out/checkpoints", 8, model);
  CHECK(complaint({.from = directory / "out", .to = directory / "hf"})
            .ends_with("step-8: ghost has neither master nor weight"));
}

}  // namespace zeroth::launcher::export_model_test
