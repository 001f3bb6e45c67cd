#include "data/samples/sample_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "data/records/messages.h"

namespace zeroth::data {
namespace {

// Encodes the parts of a text, each by itself.
TokenRecord encode_parts(const Tokenizer& tokenizer, const TextRecord& record) {
  TokenRecord all;
  for (const TextPart& part : record.parts) {
    const std::vector<int32_t> ids = tokenizer.encode(part.text);
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    all.trained.resize(all.ids.size(), part.trained);
  }
  return all;
}

// Encodes the parts as one text. A token is trained if any of its bytes is. Adds to `merged` if a
// token has bytes of a part that is trained and of one that is not.
TokenRecord encode_joined(const Tokenizer& tokenizer, const TextRecord& record, int64_t& merged) {
  std::string text;
  std::vector<TextRange> trained;
  std::vector<size_t> boundaries;
  bool was_trained = !record.parts.empty() && record.parts.front().trained;
  for (const TextPart& part : record.parts) {
    if (part.trained != was_trained) boundaries.push_back(text.size());
    was_trained = part.trained;
    if (part.trained) trained.push_back({text.size(), text.size() + part.text.size()});
    text += part.text;
  }
  Encoding encoding = tokenizer.encode_with_offsets(text);
  merged += std::ranges::any_of(boundaries, [&](size_t boundary) {
    const auto token = std::ranges::upper_bound(encoding.offsets, boundary, {}, &TextRange::end);
    return token != encoding.offsets.end() && token->begin < boundary;
  });
  std::vector<bool> is_trained = encoding.tokens_in(std::move(trained));
  return {.ids = std::move(encoding.ids), .trained = std::move(is_trained)};
}

const char* name_of(TrainOn train_on) {
  constexpr const char* kNames[] = {"all", "completion", "assistant", "last-assistant"};
  return kNames[static_cast<size_t>(train_on)];
}

}  // namespace

SampleEncoder::SampleEncoder(const DatasetOptions& options) : options_(options) {
  const std::string path = options.path.string();
  if (options.tokenizer == nullptr) throw Error("{}: text needs a tokenizer.json", path);
  const auto end_of_text = options.tokenizer->end_of_text();
  if (!end_of_text) {
    throw Error("{}: the end-of-text token is unknown: set eos_token in tokenizer_config.json",
                path);
  }
  special_tokens_.emplace(*options.tokenizer, *end_of_text, options.version == 1);
}

TokenRecord SampleEncoder::encode(Record record) {
  TokenRecord sample;
  if (auto* const chat = std::get_if<ChatRecord>(&record)) {
    sample = encode_chat(*chat);
  } else if (auto* const text = std::get_if<TextRecord>(&record)) {
    sample = encode_text(std::move(*text));
  } else {
    sample = std::move(std::get<TokenRecord>(record));
  }
  for (const int32_t id : sample.ids) {
    if (id >= 0 && id < options_.vocab_size) continue;
    throw Error("token id {}, but the model's vocabulary has {} ids", id, options_.vocab_size);
  }
  return sample;
}

TokenRecord SampleEncoder::encode_text(TextRecord record) {
  const Tokenizer& tokenizer = *options_.tokenizer;
  if (options_.records.pairs_train_on == TrainOn::kAll) {
    for (TextPart& part : record.parts) part.trained = true;
  }
  TokenRecord text = options_.version < 3 ? encode_parts(tokenizer, record)
                                          : encode_joined(tokenizer, record, merged_boundaries_);
  if (record.is_complete) return text;
  const auto last = std::ranges::find(text.trained, true) - text.trained.begin();
  size_t begin = 0;
  TokenRecord all;
  all.ids = special_tokens_->add_special_tokens(text.ids, static_cast<size_t>(last),
                                                record.parts.back().text, begin);
  const bool from_begin = record.parts.front().trained;
  all.trained.assign(begin, from_begin);
  all.trained.insert(all.trained.end(), text.trained.begin(), text.trained.end());
  all.trained.resize(all.ids.size(), true);
  return all;
}

TokenRecord SampleEncoder::encode_chat(ChatRecord& record) {
  ChatEncoder& encoder = chat_encoder();
  const auto is_list = [](const auto& message) {
    return message.contains("content") && message["content"].is_array();
  };
  if (std::ranges::any_of(record.messages, is_list) && !encoder.places_text_parts())
    joined_parts_ += static_cast<int64_t>(join_text_parts(record));
  return encoder.encode(record);
}

ChatEncoder& SampleEncoder::chat_encoder() {
  if (chat_encoder_) return *chat_encoder_;
  ModelTemplates templates = read_model_templates(options_.model_dir);
  if (!options_.records.chat_template.empty())
    use_template_file(options_.records.chat_template, templates);
  if (!templates.chat) {
    throw Error(
        "the records are chats, but {} has no chat template: name a file with --chat-template, for "
        "example the chat_template.jinja of the model's -instruct version",
        options_.model_dir.string());
  }
  ChatEncoder::Options options{.template_kwargs = nlohmann::ordered_json::object(),
                               .train_on = options_.records.chats_train_on,
                               .now = {}};
  if (!options_.records.chat_template_kwargs.empty()) {
    options.template_kwargs = parse_ordered_json(options_.records.chat_template_kwargs,
                                                 {.name = "--chat-template-kwargs"});
  }
  chat_rule_ = fmt::format("|{}|{:016x}|{}", name_of(options.train_on), templates.digest,
                           options.template_kwargs.dump());
  chat_encoder_ =
      std::make_unique<ChatEncoder>(*options_.tokenizer, std::move(templates), std::move(options));
  return *chat_encoder_;
}

void SampleEncoder::add_counts(const SampleEncoder& other) {
  special_tokens_->add_counts(*other.special_tokens_);
  joined_parts_ += other.joined_parts_;
  merged_boundaries_ += other.merged_boundaries_;
  if (!other.chat_encoder_) return;
  chat_rule_ = other.chat_rule_;
  other_counts_.add(other.chat_encoder_->counts());
}

void SampleEncoder::store_counts(RecordFacts& facts) const {
  facts.own_special_tokens = special_tokens_->own_special_tokens();
  facts.joined_parts = joined_parts_;
  facts.merged_boundaries = merged_boundaries_;
  facts.fields += chat_rule_;
  ChatEncoder::Counts counts = other_counts_;
  if (chat_encoder_) counts.add(chat_encoder_->counts());
  facts.turns = counts.turns;
  facts.turns_without_end = counts.turns_without_end;
  facts.with_special_tokens = counts.with_special_tokens;
  facts.missing_fields = counts.missing_fields;
}

}  // namespace zeroth::data
