#include "model/hf/model_directory.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/env_reader.h"
#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/text/printable.h"
#include "model/hf/safetensors.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPointerBytes = 1024;  // git-lfs writes none that is longer
constexpr std::string_view kPointerStart = "version https://git-lfs.github.com/spec/";
constexpr size_t kCommitDigits = 40;

// Returns the directory of Python's expanduser("~"): HOME, otherwise the entry of the user
// database; empty if there is neither.
fs::path home_directory() {
  if (const auto home = EnvReader(std::getenv).text("HOME")) return *home;
  std::array<char, 16'384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  return error == 0 && found != nullptr ? fs::path(found->pw_dir) : fs::path();
}

// Returns the hub's cache; empty if no variable names it and this user has no home.
fs::path hub_cache() {
  const EnvReader reader(std::getenv);
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto cache = reader.text(name)) return *cache;
  }
  if (const auto hf_home = reader.text("HF_HOME")) return fs::path(*hf_home) / "hub";
  if (const auto caches = reader.text("XDG_CACHE_HOME"))
    return fs::path(*caches) / "huggingface" / "hub";
  const fs::path home = home_directory();
  return home.empty() ? home : home / ".cache" / "huggingface" / "hub";
}

bool is_hub_name_part(std::string_view word) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !word.empty() && word.front() != '.' && word.front() != '-' &&
         std::all_of(word.begin(), word.end(), fits);
}

// Returns whether the name is "org/model", or "model" alone as for a few old ones.
bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return is_hub_name_part(name);
  return is_hub_name_part(name.substr(0, slash)) && is_hub_name_part(name.substr(slash + 1));
}

bool is_commit(std::string_view text) {
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  return text.size() == kCommitDigits && std::all_of(text.begin(), text.end(), is_digit);
}

// Returns the snapshot's directory; empty if there is none.
fs::path find_snapshot(const fs::path& cache, std::string name) {
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  const fs::path entry = cache / ("models--" + name), main = entry / "refs" / "main";
  std::error_code ignored;
  if (!fs::exists(main, ignored)) return {};
  std::string commit = read_file(main, kMaxPointerBytes);
  commit.erase(commit.find_last_not_of(" \r\n") + 1);
  if (!is_commit(commit)) {
    throw Error("{} is \"{}\", expected a commit's {} hexadecimal digits", main.string(),
                shortened(commit), kCommitDigits);
  }
  const fs::path snapshot = entry / "snapshots" / commit;
  return fs::exists(snapshot / "config.json", ignored) ? snapshot : fs::path();
}

// Files in which a run records facts about the model that it has made.
constexpr std::array<std::string_view, 4> kRunRecords = {"trainer_state.json", "all_results.json",
                                                         "train_results.json", "eval_results.json"};
constexpr std::array<std::string_view, 7> kAuxiliaryFiles = {
    "generation_config.json", "special_tokens_map.json",  "vocab.json",           "merges.txt",
    "added_tokens.json",      "preprocessor_config.json", "processor_config.json"};

constexpr const char* kFromGguf =
    "transformers converts it: AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=NAME)"
    ".save_pretrained(CONVERTED), and likewise AutoTokenizer";

// Throws an Error for a file in the place of a directory.
[[noreturn]] void reject_file(const fs::path& path) {
  const std::string kind = path.extension().string();
  const std::string directory = path.has_parent_path() ? path.parent_path().string() : ".";
  if (kind == ".gguf") {
    throw Error("{} is a GGUF file, expected a folder in Hugging Face's format: {}", path.string(),
                kFromGguf);
  }
  if (kind == ".zip" || kind == ".gz" || kind == ".tar" || kind == ".tgz") {
    throw Error("{} is an archive, expected a folder: unpack it and name the folder",
                path.string());
  }
  throw Error(
      "{} is a file, expected the folder that holds config.json, weights and tokenizer.json: "
      "--model {} if it holds these",
      path.string(), directory);
}

// Returns the first subdirectory, by name, that has a config.json; empty if none has.
fs::path directory_with_config(const fs::path& directory) {
  fs::path first;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (!fs::exists(entry.path() / "config.json", ignored)) continue;
    if (first.empty() || entry.path() < first) first = entry.path();
  }
  return first;
}

bool is_pointer(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) > kMaxPointerBytes) {
    return false;
  }
  return read_file(path, kMaxPointerBytes).starts_with(kPointerStart);
}

}  // namespace

fs::path find_model_directory(const std::string& name) {
  std::error_code ignored;
  if (fs::exists(name, ignored) || !is_hub_name(name)) return name;
  const fs::path cache = hub_cache();
  if (cache.empty()) {
    throw Error(
        "{} is not a folder here, and HOME is not set: set HF_HUB_CACHE to Hugging Face's cache",
        name);
  }
  const fs::path snapshot = find_snapshot(cache, name);
  if (!snapshot.empty()) return snapshot;
  throw Error(
      "{} is not a folder here, and Hugging Face's cache {} holds no complete model of that name; "
      "nothing is downloaded at run time: run `hf download {}`",
      name, cache.string(), name);
}

void check_model_directory(const fs::path& directory) {
  std::error_code ignored;
  if (fs::is_regular_file(directory, ignored)) reject_file(directory);
  if (!fs::is_directory(directory, ignored)) return;  // the reader of the directory reports it
  if (fs::exists(directory / "adapter_config.json", ignored)) {
    throw Error(
        "{0} holds an adapter (adapter_config.json), not a whole model: give its base as --model, "
        "and --adapter {0}, or merge them: zeroth merge BASE {0} OUT",
        directory.string());
  }
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!is_model_file(name) || !is_pointer(entry.path())) continue;
    throw Error(
        "{} is a git-lfs pointer of {} bytes, not the file: `git lfs pull` in {} fetches it",
        entry.path().string(), entry.file_size(), directory.string());
  }
  has_weights(directory);
}

std::string missing_config_hint(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return "; there is no such folder";
  if (fs::exists(directory / "params.json", ignored)) {
    return "; params.json is in Meta's or Mistral's own format: transformers' "
           "convert_llama_weights_to_hf.py converts it, and the Hub has most models in both "
           "formats";
  }
  if (const fs::path inner = directory_with_config(directory); !inner.empty()) {
    return fmt::format("; {} has one", inner.string());
  }
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".gguf") {
      return fmt::format("; {} is a GGUF model: {}", shortened(name), kFromGguf);
    }
    if (is_model_file(name)) {
      return fmt::format("; {} belongs to a model: copy config.json from its source",
                         shortened(name));
    }
  }
  return fmt::format("; `hf download ORG/MODEL --local-dir {}` fetches a whole model",
                     directory.string());
}

bool is_auxiliary_file(const std::string& name) {
  return std::find(kAuxiliaryFiles.begin(), kAuxiliaryFiles.end(), name) != kAuxiliaryFiles.end() ||
         name.starts_with("tokenizer") || name.starts_with("chat_template");
}

bool is_model_file(const std::string& name) {
  const bool is_weights =
      name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
      (name.starts_with("pytorch_model") && name.find(".bin") != std::string::npos);
  const bool is_adapter =
      name.starts_with("adapter_") && (name.ends_with(".json") || name.ends_with(".bin"));
  return name == "config.json" || is_weights || is_adapter || is_auxiliary_file(name) ||
         std::find(kRunRecords.begin(), kRunRecords.end(), name) != kRunRecords.end();
}

}  // namespace zeroth::model
