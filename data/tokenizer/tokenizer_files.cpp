#include "data/tokenizer/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/printable.h"
#include "data/tokenizer/bpe.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// No real template adds more. The limit bounds the cost of nested processors, which copy the ids
// repeatedly.
constexpr size_t kMaxTemplateTokens = 1000;

void require_few_tokens(const TextTemplate& text_template) {
  const size_t count = text_template.prefix.size() + text_template.suffix.size();
  if (count > kMaxTemplateTokens) {
    throw Error("post_processor: more than {} tokens around a text", kMaxTemplateTokens);
  }
}

// Parses "single", a list of special tokens with the text ("A") once among them.
TextTemplate parse_single(const JsonView& processor) {
  TextTemplate text_template;
  bool text_seen = false;
  const JsonView single = processor.at("single");
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonView part = single.at(i);
    if (part.find("Sequence")) {
      if (text_seen) throw Error("post_processor: the template holds the text twice");
      text_seen = true;
      continue;
    }
    const std::string name = part.at("SpecialToken").at("id").text();
    auto& side = text_seen ? text_template.suffix : text_template.prefix;
    const JsonView ids = processor.at("special_tokens").at(name).at("ids");
    for (size_t k = 0; k < ids.size(); ++k) {
      side.push_back(static_cast<int32_t>(ids.at(k).integer(0, kMaxTokenId)));
      require_few_tokens(text_template);
    }
  }
  if (!text_seen) throw Error("post_processor: the template does not contain the text");
  return text_template;
}

TextTemplate parse_processor(const JsonView& processor) {
  const std::string type = processor.at("type").text();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return parse_single(processor);
  if (type != "Sequence") throw Error("post_processor type '{}' is not supported", shortened(type));
  TextTemplate text_template;
  const JsonView parts = processor.at("processors");
  for (size_t i = 0; i < parts.size(); ++i) {
    const TextTemplate outer = parse_processor(parts.at(i));
    text_template.prefix.insert(text_template.prefix.begin(), outer.prefix.begin(),
                                outer.prefix.end());
    text_template.suffix.insert(text_template.suffix.end(), outer.suffix.begin(),
                                outer.suffix.end());
    require_few_tokens(text_template);
  }
  return text_template;
}

// Returns the value under a key of a file; null if the file or the key is missing.
json lookup(const fs::path& path, const char* key) {
  if (!fs::exists(path)) return nullptr;
  const json file = read_json({.name = path.string()});
  const auto found = file.is_object() ? JsonView(file).find(key) : std::nullopt;
  return found ? found->json() : json();
}

}  // namespace

TextTemplate parse_text_template(const json& post_processor) {
  if (post_processor.is_null()) return {};
  return parse_processor(JsonView(post_processor, "post_processor"));
}

std::optional<int32_t> find_end_of_text(
    const fs::path& model_dir,
    const std::function<std::optional<int32_t>(const std::string&)>& token_to_id) {
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    json token = lookup(model_dir / name, "eos_token");
    if (token.is_object()) token = token.value("content", json());
    if (!token.is_string()) continue;
    const auto text = token.get<std::string>();
    const auto id = token_to_id(text);
    if (!id) {
      throw Error("{}: eos_token '{}' is not in the vocabulary", (model_dir / name).string(),
                  shortened(text));
    }
    return id;
  }
  for (const char* const name : {"generation_config.json", "config.json"}) {
    json id = lookup(model_dir / name, "eos_token_id");
    if (id.is_array() && !id.empty()) id = json(id.at(0));
    if (!id.is_number()) continue;
    const JsonView view(id, fmt::format("{}: eos_token_id", (model_dir / name).string()));
    return static_cast<int32_t>(view.integer(0, kMaxTokenId));
  }
  return std::nullopt;
}

}  // namespace zeroth::data
