// The chat templates of a model's folder.
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/samples/chat_encoder.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

json read_object(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json file = read_json({.name = path.string()});
  if (!file.is_object()) throw Error("{}: not a JSON object", path.string());
  return file;
}

// Adds a token that is a text, or an object with its text as "content".
void add_token(const std::string& name, const json& token, nlohmann::ordered_json& tokens) {
  const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  if (text.is_string()) tokens[name] = text.get<std::string>();
}

nlohmann::ordered_json read_special_tokens(const json& config, const fs::path& model_dir) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::object();
  const json map = read_object(model_dir / "special_tokens_map.json");
  for (const json* const file : {&map, &config}) {  // the latter's tokens win
    for (const char* const name : kSpecialTokens) {
      if (file->contains(name)) add_token(name, file->at(name), tokens);
    }
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra != config.end() && extra->is_object()) {
    for (const auto& [name, token] : extra->items()) add_token(name, token, tokens);
  }
  return tokens;
}

// Returns the sources of tokenizer_config.json's templates by their names; a single one is
// "default".
std::map<std::string, std::string> named_templates(const json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) return {{"default", found->get<std::string>()}};
  std::map<std::string, std::string> templates;
  for (const json& one : *found) {
    const bool is_named = one.is_object() && one.contains("name") && one.contains("template") &&
                          one["name"].is_string() && one["template"].is_string();
    if (!found->is_array() || !is_named) {
      throw Error(
          "{}: chat_template is {}, expected a template or a list of "
          "{{\"name\": ..., \"template\": ...}}",
          path, quoted(*found));
    }
    templates[one["name"].get<std::string>()] = one["template"].get<std::string>();
  }
  return templates;
}

ChatTemplate parse_template(std::string_view source, const std::string& name,
                            ModelTemplates& templates) {
  templates.digest = mix64(templates.digest ^ fnv1a(source));
  return ChatTemplate::parse(source, name);
}

ChatTemplate read_template(const fs::path& path, ModelTemplates& templates) {
  return parse_template(MappedFile(path).text(), path.string(), templates);
}

}  // namespace

ModelTemplates read_model_templates(const fs::path& model_dir) {
  const fs::path config_path = model_dir / kConfig;
  const json config = read_object(config_path);
  ModelTemplates result;
  result.special_tokens = read_special_tokens(config, model_dir);
  const fs::path chat = model_dir / "chat_template.jinja";
  if (fs::exists(chat)) {
    result.chat = read_template(chat, result);
    const fs::path tools = model_dir / "additional_chat_templates/tool_use.jinja";
    if (fs::exists(tools)) result.tools = read_template(tools, result);
    return result;
  }
  for (const auto& [name, source] : named_templates(config, config_path.string())) {
    const std::string place =
        fmt::format("{}: chat_template '{}'", config_path.string(), shortened(name));
    if (name == "default") result.chat = parse_template(source, place, result);
    if (name == "tool_use") result.tools = parse_template(source, place, result);
  }
  return result;
}

void use_template_file(const fs::path& path, ModelTemplates& templates) {
  templates.digest = 0;
  templates.chat = read_template(path, templates);
  templates.tools.reset();
}

}  // namespace zeroth::data
