#include "model/hf/model_directory.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::model_directory_test {
namespace {

namespace fs = std::filesystem;

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

// What says where the cache is, for as long as this lives.
class CacheVariables {
 public:
  explicit CacheVariables(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* before = std::getenv(name);
      before_[name] = before == nullptr ? "" : before;
      const auto value = values.find(name);
      ::setenv(name, value == values.end() ? "" : value->second.c_str(), 1);
    }
  }
  ~CacheVariables() {
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

// An entry of the hub's cache with a config.json, as huggingface_hub makes them.
fs::path add_model(const fs::path& cache, const std::string& entry) {
  const fs::path directory = cache / ("models--" + entry);
  fs::create_directories(directory / "refs");
  fs::create_directories(directory / "snapshots" / kCommit);
  write_text(directory / "refs" / "main", kCommit);
  write_text(directory / "snapshots" / kCommit / "config.json", "{}");
  return directory;
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a hub's name is the newest snapshot in the cache, wherever the variables say it is") {
  const TempFolder directory;
  const std::map<std::string, std::pair<std::string, fs::path>> places = {
      {"HF_HUB_CACHE", {directory / "a", directory / "a"}},
      {"HUGGINGFACE_HUB_CACHE", {directory / "b", directory / "b"}},
      {"HF_HOME", {directory / "c", directory / "c" / "hub"}},
      {"XDG_CACHE_HOME", {directory / "d", directory / "d" / "huggingface" / "hub"}},
      {"HOME", {directory / "e", directory / "e" / ".cache" / "huggingface" / "hub"}}};
  for (const auto& [variable, place] : places) {
    const fs::path entry = add_model(place.second, "org--model-1.5_B");
    const CacheVariables set(std::map<std::string, std::string>{{variable, place.first}});
    CHECK(find_model_directory("org/model-1.5_B") == entry / "snapshots" / kCommit);
  }
  add_model(directory / "a", "gpt2");
  const CacheVariables set({{"HF_HUB_CACHE", directory / "a"}, {"HF_HOME", directory / "c"}});
  CHECK(find_model_directory("gpt2") == directory / "a" / "models--gpt2" / "snapshots" / kCommit);
}

TEST_CASE("what is there, or can be no hub's name, stays as it is") {
  const TempFolder directory;
  const CacheVariables set(std::map<std::string, std::string>{{"HF_HOME", directory.path()}});
  CHECK(find_model_directory(directory.path()) == directory.path());
  for (const char* name : {"", "/no/such", "a/b/c", "../x", "./x", "org/", "org/..", "-x", "a b"}) {
    CHECK(find_model_directory(name) == name);
  }
}

TEST_CASE("a hub's name that the cache lacks gets the command that fetches it") {
  const TempFolder directory;
  const CacheVariables set(std::map<std::string, std::string>{{"HF_HUB_CACHE", directory.path()}});
  const std::string missing = "org/m is not a folder here, and Hugging Face's cache " +
                              directory.path().string() +
                              " holds no complete model of that name; nothing is downloaded at run "
                              "time: run `hf download org/m`";
  CHECK_THROWS_WITH_AS(find_model_directory("org/m"), missing.c_str(), Error);
  const fs::path entry = add_model(directory.path(), "org--m");
  fs::remove(entry / "snapshots" / kCommit / "config.json");
  CHECK_THROWS_WITH_AS(find_model_directory("org/m"), missing.c_str(), Error);
  write_text(entry / "refs" / "main", "../../../../etc\n");
  CHECK(refusal([] { find_model_directory("org/m"); }) ==
        (entry / "refs" / "main").string() +
            " is \"../../../../etc\", expected a commit's 40 hexadecimal digits");
}

TEST_CASE("an adapter, a git-lfs pointer and another format are named, with what to run next") {
  const TempFolder directory;
  check_model_directory(directory / "nothing");
  check_model_directory(directory.path());
  directory.write("pytorch_model.bin", "weights");
  CHECK(refusal([&] {
          check_model_directory(directory.path());
        }).find("save_pretrained(CONVERTED)") != std::string::npos);
  directory.write("model.safetensors",
                  "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  CHECK(refusal([&] { check_model_directory(directory.path()); }) ==
        (directory / "model.safetensors").string() +
            " is a git-lfs pointer of 63 bytes, not the file: `git lfs pull` in " +
            directory.path().string() + " fetches it");
  directory.write("model.safetensors", "whatever it is");
  check_model_directory(directory.path());
  directory.write("adapter_config.json", "{}");
  CHECK(refusal([&] {
          check_model_directory(directory.path());
        }).starts_with(directory.path().string() + " holds an adapter (adapter_config.json)"));
}

TEST_CASE("a file in the place of a model's folder is named, with the way out") {
  const TempFolder directory;
  const auto refused = [&](const char* name) {
    return refusal([&] { check_model_directory(directory.write(name, "bytes")); });
  };
  CHECK(refused("m.Q4_1.gguf").find("m.Q4_1.gguf is a GGUF file, expected a folder") !=
        std::string::npos);
  CHECK(refused("m.Q4_1.gguf").find("gguf_file=NAME") != std::string::npos);
  for (const char* name : {"model.safetensors", "pytorch_model.bin", "config.json", "plain"}) {
    CHECK_MESSAGE(refused(name).ends_with(name +
                                          std::string(" is a file, expected the folder that "
                                                      "holds config.json, weights and "
                                                      "tokenizer.json: --model ") +
                                          directory.path().string() + " if it holds these"),
                  name);
  }
  CHECK(refused("model.tar.gz").find("is an archive, expected a folder: unpack it") !=
        std::string::npos);
}

TEST_CASE("a folder without config.json is told by what else is in it") {
  const TempFolder directory;
  CHECK(missing_config_hint(directory.path()) == "; `hf download ORG/MODEL --local-dir " +
                                                     directory.path().string() +
                                                     "` fetches a whole model");
  CHECK(missing_config_hint(directory / "nowhere") == "; there is no such folder");
  const auto with = [&](const std::string& name) {
    const TempFolder other;
    fs::create_directories((other / name).parent_path());
    other.write(name, "bytes");
    return missing_config_hint(other.path());
  };
  CHECK(with("params.json").find("convert_llama_weights_to_hf.py") != std::string::npos);
  CHECK(with("m.gguf").find("m.gguf is a GGUF model: transformers converts it") !=
        std::string::npos);
  CHECK(with("model.safetensors").find("copy config.json from its source") != std::string::npos);
  CHECK(with("checkpoint-8/config.json").ends_with("/checkpoint-8 has one"));
}

TEST_CASE("a model's files are distinguished from others by their names") {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                           "chat_template.jinja", "generation_config.json", "vocab.json"}) {
    CAPTURE(name);
    CHECK(is_auxiliary_file(name));
    CHECK(is_model_file(name));
  }
  for (const char* name :
       {"config.json", "model.safetensors", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
        "pytorch_model-00001-of-00002.bin", "adapter_config.json", "adapter_model.safetensors",
        "adapter_model.bin", "trainer_state.json", "eval_results.json"}) {
    CAPTURE(name);
    CHECK_FALSE(is_auxiliary_file(name));
    CHECK(is_model_file(name));
  }
  for (const char* name :
       {"metrics.jsonl", "README.md", "notes.txt", "ds_config.json", "data.bin"}) {
    CAPTURE(name);
    CHECK_FALSE(is_model_file(name));
  }
}

}  // namespace zeroth::model::model_directory_test
