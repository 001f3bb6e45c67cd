#include "data/tokenizer_files.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// "single" is a list of special tokens with the text ("A") once among them.
TextTemplate parse_single(const json& processor) {
  TextTemplate around;
  bool text_seen = false;
  for (const json& part : processor.at("single")) {
    if (part.contains("Sequence")) {
      if (text_seen) throw Error("post_processor: the template holds the text twice");
      text_seen = true;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    auto& side = text_seen ? around.suffix : around.prefix;
    for (const json& id : processor.at("special_tokens").at(name).at("ids")) {
      side.push_back(id.get<int32_t>());
    }
  }
  if (!text_seen) throw Error("post_processor: the template leaves out the text");
  return around;
}

// The value under a key of a file that may be missing; null if there is none.
json lookup(const fs::path& path, const char* key) {
  if (!fs::exists(path)) return nullptr;
  const json file = read_json_file(path);
  return file.is_object() ? file.value(key, json()) : json();
}

}  // namespace

json read_json_file(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw Error("cannot read {}", path.string());
  try {
    return json::parse(file);
  } catch (const json::exception& e) {
    throw Error("{} is not JSON: {}", path.string(), e.what());
  }
}

TextTemplate parse_text_template(const json& post_processor) {
  if (post_processor.is_null()) return {};
  const auto type = post_processor.at("type").get<std::string>();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return parse_single(post_processor);
  if (type != "Sequence") throw Error("post_processor type '{}' is not supported", type);
  TextTemplate around;
  for (const json& processor : post_processor.at("processors")) {
    const TextTemplate outer = parse_text_template(processor);
    around.prefix.insert(around.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    around.suffix.insert(around.suffix.end(), outer.suffix.begin(), outer.suffix.end());
  }
  return around;
}

std::optional<int32_t> find_end_of_text(
    const fs::path& model_dir,
    const std::function<std::optional<int32_t>(const std::string&)>& id_of) {
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    json token = lookup(model_dir / name, "eos_token");
    if (token.is_object()) token = token.value("content", json());
    if (!token.is_string()) continue;
    const auto text = token.get<std::string>();
    const auto id = id_of(text);
    if (!id) throw Error("{}: eos_token '{}' is no token", (model_dir / name).string(), text);
    return id;
  }
  for (const char* const name : {"generation_config.json", "config.json"}) {
    json id = lookup(model_dir / name, "eos_token_id");
    if (id.is_array() && !id.empty()) id = json(id.at(0));
    if (id.is_number_integer()) return id.get<int32_t>();
  }
  return std::nullopt;
}

}  // namespace zeroth::data
