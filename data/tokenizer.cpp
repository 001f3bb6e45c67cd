#include "data/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/printable.h"
#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/byte_level.h"
#include "data/pretokenizer.h"
#include "data/tokenizer_files.h"
#include "data/utf8.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Whether text is brought to NFC first; any other normaliser is refused.
bool parse_nfc(const JsonView& normalizer) {
  const std::string& type = normalizer.at("type").text();
  if (type == "NFC") return true;
  if (type != "Sequence") throw Error("normalizer type '{}' is not supported", shortened(type));
  const JsonView parts = normalizer.at("normalizers");
  bool nfc = false;
  for (size_t i = 0; i < parts.size(); ++i) nfc = parse_nfc(parts.at(i)) || nfc;
  return nfc;
}

bool parse_nfc(const std::optional<JsonView>& normalizer) {
  return normalizer && parse_nfc(*normalizer);
}

json member(const JsonView& file, const char* key) {
  const auto found = file.find(key);
  return found ? found->json() : json();
}

std::vector<AddedToken> pick(const std::vector<AddedToken>& tokens, bool normalized, bool nfc) {
  std::vector<AddedToken> picked;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && nfc) token.content = to_nfc(token.content);
    picked.push_back(std::move(token));
  }
  return picked;
}

std::string token_bytes(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const size_t begin = at;
    const int byte = char_to_byte(next_byte_char(token, at));
    if (byte < 0) {
      bytes += token.substr(begin, at - begin);
    } else {
      bytes += static_cast<char>(byte);
    }
  }
  return bytes;
}

}  // namespace

struct Tokenizer::Parts {
  Parts(const JsonView& file, std::vector<AddedToken> added)
      : bpe(file.at("model").json()),
        pretokenizer(member(file, "pre_tokenizer")),
        nfc(parse_nfc(file.find("normalizer"))),
        raw_added(pick(added, false, nfc)),
        normalized_added(pick(added, true, nfc)),
        around(parse_text_template(member(file, "post_processor"))) {
    for (const auto& [token, id] : bpe.vocabulary()) set_bytes(id, token_bytes(token));
    for (const AddedToken& token : added) add(token);
  }

  void set_bytes(int32_t id, std::string text) {
    if (bytes.size() <= static_cast<size_t>(id)) bytes.resize(id + 1);
    bytes[id] = std::move(text);
  }

  void add(const AddedToken& token) {
    const auto known = bpe.vocabulary().find(token.content);
    if (known != bpe.vocabulary().end() && known->second != token.id) {
      throw Error("added token '{}' has the id {}, but {} in the vocabulary",
                  shortened(token.content), token.id, known->second);
    }
    set_bytes(token.id, token.content);
    added_ids.emplace(token.content, token.id);
  }

  std::optional<int32_t> id_of(const std::string& token) const {
    for (const Vocabulary* const ids : {&added_ids, &bpe.vocabulary()}) {
      const auto found = ids->find(token);
      if (found != ids->end()) return found->second;
    }
    return std::nullopt;
  }

  Bpe bpe;
  Pretokenizer pretokenizer;
  bool nfc;
  AddedTokenSplitter raw_added;
  AddedTokenSplitter normalized_added;
  TextTemplate around;
  Vocabulary added_ids;
  std::vector<std::string> bytes;  // by id
  std::optional<int32_t> end_of_text;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer.json";
  const json file = read_json({.name = path.string()});
  std::unique_ptr<Parts> parts;
  try {
    const JsonView view(file);
    parts = std::make_unique<Parts>(view, parse_added_tokens(member(view, "added_tokens")));
  } catch (const Error& e) {
    throw Error("{}: {}", path.string(), e.what());
  }
  parts->end_of_text =
      find_end_of_text(model_dir, [&](const std::string& token) { return parts->id_of(token); });
  return Tokenizer(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (const auto offset = find_invalid_utf8(text)) {
    throw Error("the text is not UTF-8 at byte {}", *offset);
  }
  std::vector<int32_t> ids;
  const auto add_id = [&](int32_t id) { ids.push_back(id); };
  const auto add_word = [&](std::string_view word) { parts_->bpe.encode(word, ids); };
  const auto add_text = [&](std::string_view part) { parts_->pretokenizer.split(part, add_word); };
  parts_->raw_added.split(text, add_id, [&](std::string_view part) {
    const std::string normal = parts_->nfc ? to_nfc(part) : std::string(part);
    parts_->normalized_added.split(normal, add_id, add_text);
  });
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    text += parts_->bytes[id];
  }
  return text;
}

const std::vector<int32_t>& Tokenizer::prefix() const {
  return parts_->around.prefix;
}
const std::vector<int32_t>& Tokenizer::suffix() const {
  return parts_->around.suffix;
}
std::optional<int32_t> Tokenizer::end_of_text() const {
  return parts_->end_of_text;
}
int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(parts_->bytes.size());
}

}  // namespace zeroth::data
