#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/printable.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns the value under a key; null if the key is missing.
json member(const JsonView& file, const char* key) {
  const auto found = file.find(key);
  return found ? found->json() : json();
}

std::vector<AddedToken> pick_raw(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.normalized; });
  return tokens;
}

// Returns the tokens to match in a normalized text, with normalized contents.
std::vector<AddedToken> pick_normalized(std::vector<AddedToken> tokens,
                                        const Normalizer& normalizer) {
  std::erase_if(tokens, [](const AddedToken& token) { return !token.normalized; });
  for (AddedToken& token : tokens) token.content = normalizer.run(token.content);
  return tokens;
}

// Throws an Error for a missing tokenizer.json that names other tokenizer files, from which
// transformers can make it.
[[noreturn]] void explain_missing(const fs::path& model_dir) {
  for (const char* const other : {"tokenizer.model", "vocab.json", "spiece.model", "tekken.json"}) {
    if (!fs::exists(model_dir / other)) continue;
    throw Error(
        "{0}: no tokenizer.json, but {1}; create it from {1}: pip install transformers "
        "sentencepiece protobuf tiktoken && python3 -c \"from transformers import AutoTokenizer as "
        "T; T.from_pretrained('{0}').save_pretrained('{0}')\"",
        model_dir.string(), other);
  }
  throw Error(
      "{}: no such file; text needs the model's tokenizer: hf download ORG/MODEL tokenizer.json "
      "tokenizer_config.json, or token ids as --data tokens.bin",
      (model_dir / "tokenizer.json").string());
}

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

// Returns the empty range behind the last one.
TextRange empty_after(const std::vector<TextRange>& ranges) {
  const size_t at = ranges.empty() ? 0 : ranges.back().end;
  return {at, at};
}

// Returns the value under a key of a file; null if the file or the key is missing.
json lookup(const fs::path& path, const char* key) {
  if (!fs::exists(path)) return nullptr;
  const json file = read_json({.name = path.string()});
  return file.is_object() ? member(JsonView(file), key) : json();
}

}  // namespace

struct Tokenizer::Parts {
  Parts(const JsonView& file, const std::vector<AddedToken>& added)
      : bpe(file.at("model").json()),
        normalizer(member(file, "normalizer")),
        pretokenizer(member(file, "pre_tokenizer")),
        raw_added(pick_raw(added)),
        normalized_added(pick_normalized(added, normalizer)),
        decoder(member(file, "decoder")),
        text_template(parse_text_template(member(file, "post_processor"))) {
    if (normalizer.strips_beginning() && pretokenizer.depends_on_beginning()) {
      throw Error(
          "a normalizer that strips the beginning before prepend_scheme 'first' is not "
          "supported");
    }
    for (const auto& [token, id] : bpe.vocabulary()) set_token(id, token);
    for (const AddedToken& token : added) add(token);
  }

  void set_token(int32_t id, std::string text) {
    if (tokens.size() <= static_cast<size_t>(id)) tokens.resize(id + 1);
    tokens[id] = std::move(text);
  }

  void add(const AddedToken& token) {
    const auto known = bpe.vocabulary().find(token.content);
    if (known != bpe.vocabulary().end() && known->second != token.id) {
      throw Error("added token '{}' has the id {}, but {} in the vocabulary",
                  shortened(token.content), token.id, known->second);
    }
    set_token(token.id, token.normalized ? normalizer.run(token.content) : token.content);
    added_ids.emplace(token.content, token.id);
    if (token.special) special_ids.insert(token.id);
  }

  std::optional<int32_t> token_to_id(const std::string& token) const {
    for (const Vocabulary* const ids : {&added_ids, &bpe.vocabulary()}) {
      const auto found = ids->find(token);
      if (found != ids->end()) return found->second;
    }
    return std::nullopt;
  }

  Bpe bpe;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  AddedTokenSplitter raw_added;
  AddedTokenSplitter normalized_added;
  Decoder decoder;
  TextTemplate text_template;
  Vocabulary added_ids;
  std::vector<std::string> tokens;  // by id; empty if there is none
  std::unordered_set<int32_t> special_ids;
  std::optional<int32_t> end_of_text;
  std::vector<int32_t> end_tokens;
};

Tokenizer Tokenizer::load(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer.json";
  if (!fs::exists(path)) explain_missing(model_dir);
  const json file = read_json({.name = path.string()});
  std::shared_ptr<Parts> parts;
  try {
    const JsonView view(file);
    parts = std::make_shared<Parts>(view, parse_added_tokens(member(view, "added_tokens")));
  } catch (const Error& e) {
    throw Error("{}: {}", path.string(), e.what());
  }
  parts->end_of_text = find_end_of_text(
      model_dir, [&](const std::string& token) { return parts->token_to_id(token); });
  parts->end_tokens = read_end_token_ids(model_dir);
  if (parts->end_of_text && std::ranges::count(parts->end_tokens, *parts->end_of_text) == 0)
    parts->end_tokens.push_back(*parts->end_of_text);
  return Tokenizer(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids, nullptr);
  return ids;
}

std::vector<bool> Encoding::tokens_in(std::vector<TextRange> ranges) const {
  std::ranges::sort(ranges, {}, &TextRange::begin);
  std::vector<bool> inside;
  inside.reserve(ids.size());
  auto range = ranges.begin();
  for (const auto& [begin, end] : offsets) {
    while (range != ranges.end() && range->end <= begin) ++range;
    inside.push_back(range != ranges.end() && range->begin < end);
  }
  return inside;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text) const {
  Encoding encoding;
  encode(text, encoding.ids, &encoding.offsets);
  return encoding;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids,
                       std::vector<TextRange>* offsets) const {
  if (const auto offset = find_invalid_utf8(text)) {
    throw Error("the text is not UTF-8 at byte {}", *offset);
  }
  const bool aligned = offsets != nullptr;
  const auto add_tokens_of = [&](const AlignedText& part) {
    return [&](int32_t id, TextRange range) {
      ids.push_back(id);
      if (aligned) offsets->push_back(part.origin(range.begin, range.end));
    };
  };
  std::vector<uint32_t> ends;
  const auto add_word = [&](const AlignedText& word) {
    if (!aligned) return parts_->bpe.encode(word.text, ids);
    ends.clear();
    parts_->bpe.encode(word.text, ids, &ends);
    size_t begin = 0;
    for (const uint32_t end : ends) {
      offsets->push_back(begin < end ? word.origin(begin, end) : empty_after(*offsets));
      begin = end;
    }
  };
  const AlignedText whole{.text = text};
  parts_->raw_added.split(text, add_tokens_of(whole), [&](TextRange range) {
    const AlignedText raw = whole.part(range.begin, range.end);
    parts_->normalizer.run(raw, aligned, [&](const AlignedText& normal) {
      parts_->normalized_added.split(normal.text, add_tokens_of(normal), [&](TextRange piece) {
        parts_->pretokenizer.split(normal.part(piece.begin, piece.end),
                                   range.begin == 0 && piece.begin == 0, aligned, add_word);
      });
    });
  });
}

int64_t Tokenizer::num_dropped_chars() const {
  return parts_->bpe.num_dropped_chars();
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    if (!parts_->tokens[id].empty()) tokens.push_back(parts_->tokens[id]);
  }
  return parts_->decoder.run(std::move(tokens));
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : parts_->tokens[id];
}

const TextTemplate& Tokenizer::text_template() const {
  return parts_->text_template;
}
std::optional<int32_t> Tokenizer::end_of_text() const {
  return parts_->end_of_text;
}
const std::vector<int32_t>& Tokenizer::end_tokens() const {
  return parts_->end_tokens;
}
bool Tokenizer::is_special(int32_t id) const {
  return parts_->special_ids.contains(id);
}
int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(parts_->tokens.size());
}

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
  const std::vector<int32_t> ids = read_end_token_ids(model_dir);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::vector<int32_t> read_end_token_ids(const fs::path& model_dir) {
  for (const char* const name : {"generation_config.json", "config.json"}) {
    json found = lookup(model_dir / name, "eos_token_id");
    if (found.is_number()) found = json::array({found});
    if (!found.is_array() || found.empty()) continue;
    std::vector<int32_t> ids;
    for (const json& id : found) {
      const JsonView view(id, fmt::format("{}: eos_token_id", (model_dir / name).string()));
      ids.push_back(static_cast<int32_t>(view.integer(0, kMaxTokenId)));
    }
    return ids;
  }
  return {};
}

}  // namespace zeroth::data
