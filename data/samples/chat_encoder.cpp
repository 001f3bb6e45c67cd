#include "data/samples/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "data/records/record_fields.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kSpace = " \t\r\n";

// The fields of a message that hold what its author wrote.
constexpr std::string_view kWrittenFields[] = {"content", "reasoning_content", "reasoning",
                                               "thinking", "tool_calls"};

bool is_written(std::string_view field) {
  return std::ranges::count(kWrittenFields, field) > 0;
}

void widen(std::optional<TextRange>& range, const SourceRange& part) {
  if (!range) range = {part.begin, part.end};
  range->end = part.end;
}

std::vector<MessageRange> message_ranges(const RenderedChat& chat, size_t count) {
  std::vector<MessageRange> ranges(count);
  for (const SourceRange& part : chat.sources) {
    widen(ranges[part.message].all, part);
    if (is_written(part.field)) widen(ranges[part.message].written, part);
  }
  return ranges;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

bool is_blank(const ordered_json& value) {
  if (value.is_string()) {
    return value.get_ref<const std::string&>().find_first_not_of(kSpace) == std::string::npos;
  }
  return value.is_null() || value.empty();
}

bool is_answer(const ordered_json& message) {
  return message.value("role", "") == "assistant";
}

// Returns the range of a token without the white space that some tokens take in on both sides.
TextRange without_space(TextRange token, std::string_view text) {
  const auto is_space = [&](size_t at) { return kSpace.find(text[at]) != std::string_view::npos; };
  while (token.begin < token.end && is_space(token.end - 1)) --token.end;
  while (token.begin < token.end && is_space(token.begin)) ++token.begin;
  return token;
}

// Returns the text that no field of a message wrote.
std::string template_text(const RenderedChat& chat) {
  std::string words;
  size_t end = 0;
  for (const SourceRange& part : chat.sources) {
    if (part.field.empty()) continue;
    words.append(chat.text, end, part.begin - end);
    end = part.end;
  }
  return words.append(chat.text, end);
}

// Returns whether the text has the thoughts that a content begins with, as R1 and Qwen3 write them.
// Some templates leave them out of all turns but the last.
bool holds_thoughts_of(const ordered_json& content, std::string_view text) {
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  if (!content.is_string()) return true;
  std::string_view thoughts = content.get_ref<const std::string&>();
  const size_t end = thoughts.find(kEnd);
  if (end == std::string_view::npos) return true;
  thoughts = thoughts.substr(0, end);
  if (const size_t begin = thoughts.find(kBegin); begin != std::string_view::npos)
    thoughts.remove_prefix(begin + kBegin.size());
  const size_t first = thoughts.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return true;
  const size_t last = thoughts.find_last_not_of(kSpace);
  return text.find(thoughts.substr(first, last + 1 - first)) != std::string_view::npos;
}

// Returns whether the text names all tools.
bool holds_names_of(const ordered_json& tools, std::string_view text) {
  return std::ranges::all_of(tools, [&](const ordered_json& tool) {
    const ordered_json* const function = find_member(tool, "function");
    const ordered_json* const name = find_member(function != nullptr ? *function : tool, "name");
    return name == nullptr || !name->is_string() ||
           text.find(name->get_ref<const std::string&>()) != std::string_view::npos;
  });
}

// Returns the first byte of what the model writes for a message: behind the header, which is the
// prompt for generation, or where that is not known, the first byte of the message's fields.
size_t find_begin(std::string_view text, const MessageRange& message, std::string_view header) {
  const size_t all = message.all->begin;
  const size_t written = message.written ? message.written->begin : text.size();
  if (header.empty()) return message.written ? written : all;
  const size_t shared = common_prefix(text.substr(all), header);
  if (shared < header.size() && message.written) return written;
  return std::min(all + shared, written);
}

// Returns what the template's `{% generation %}` blocks mark, each as a turn of the message in it.
std::vector<Turn> marked_turns(const RenderedChat& chat, std::span<const SpecialToken> tokens) {
  const std::string_view text = chat.text;
  std::vector<Turn> turns;
  auto source = chat.sources.begin();
  for (const auto& [begin, end] : chat.generation) {
    while (source != chat.sources.end() && source->end <= begin) ++source;
    if (source == chat.sources.end()) break;
    const size_t last = text.substr(0, end).find_last_not_of(kSpace) + 1;
    const bool has_end = std::ranges::any_of(tokens, [&, first = begin](const auto& token) {
      return token.range.begin >= first && token.range.end == last;
    });
    turns.push_back({.message = source->message, .range = {begin, end}, .has_end = has_end});
  }
  return turns;
}

// Returns the end of the turn whose words end at `written`: of the first token within the message,
// with the template's words, at which generation stops, or of the first special one there. Where
// the marks of a template are no tokens, the template's words end the turn; where it has none, the
// first special token before `limit`, the next message. Returns nullopt if there is nothing of all.
std::optional<size_t> find_end(std::string_view text, std::span<const SpecialToken> tokens,
                               size_t written, size_t end, size_t limit) {
  const SpecialToken *first = nullptr, *behind = nullptr;
  for (const SpecialToken& token : tokens) {
    if (token.range.begin < written || token.range.end > limit) continue;
    const bool is_within = token.range.end <= end;
    if (is_within && token.ends_generation) return token.range.end;
    const SpecialToken*& found = is_within ? first : behind;
    if (found == nullptr) found = &token;
  }
  if (first != nullptr) return first->range.end;
  const size_t mark = text.substr(0, end).find_last_not_of(kSpace) + 1;
  if (mark > written) return mark;
  return behind != nullptr ? std::optional(behind->range.end) : std::nullopt;
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, ModelTemplates templates, Options options)
    : tokenizer_(tokenizer), templates_(std::move(templates)), options_(std::move(options)) {
  ZEROTH_CHECK(templates_.chat, "the model has no chat template");
}

void ChatEncoder::Counts::add(const Counts& other) {
  turns += other.turns;
  turns_without_end += other.turns_without_end;
  with_special_tokens += other.with_special_tokens;
  for (const auto& [field, count] : other.missing_fields) missing_fields[field] += count;
}

TokenRecord ChatEncoder::encode(const ChatRecord& record) {
  const RenderedChat chat = render(record, /*add_generation_prompt=*/false);
  Encoding encoding = tokenizer_.encode_with_offsets(chat.text);
  std::vector<SpecialToken> special;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (!tokenizer_.is_special(encoding.ids[i])) continue;
    const bool ends = std::ranges::count(tokenizer_.end_tokens(), encoding.ids[i]) > 0;
    special.push_back({without_space(encoding.offsets[i], chat.text), ends});
  }
  const auto ranges = message_ranges(chat, record.messages.size());
  count_missing(record, chat, ranges);
  count_special_tokens(chat, special);
  std::vector<TextRange> trained, masked;
  for (const Turn& turn : find_turns(record, chat, ranges, special)) {
    const bool is_trained = trains(record, turn.message);
    (is_trained ? trained : masked).push_back(turn.range);
    if (!is_trained || !is_answer(record.messages[turn.message])) continue;
    ++counts_.turns;
    counts_.turns_without_end += turn.has_end ? 0 : 1;
  }
  const bool trains_all = options_.train_on == TrainOn::kAll;
  std::vector<bool> is_trained = encoding.tokens_in(std::move(trains_all ? masked : trained));
  if (trains_all) is_trained.flip();
  return {.ids = std::move(encoding.ids), .trained = std::move(is_trained)};
}

RenderedChat ChatEncoder::render(const ChatRecord& record, bool add_generation_prompt) const {
  ordered_json context = templates_.special_tokens;
  context.update(options_.template_kwargs);
  context.update(record.template_kwargs);
  context["messages"] = record.messages;
  context["tools"] = record.tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = add_generation_prompt;
  const bool with_tools = !record.tools.is_null() && templates_.tools;
  return (with_tools ? *templates_.tools : *templates_.chat).render(context, {.now = options_.now});
}

// Returns the template's words before what an assistant writes, as far as they are the prompt for
// generation; empty if the template has none, or cannot render a question and an answer.
const std::string& ChatEncoder::header(const ChatRecord& record) {
  const auto [found, is_new] = headers_.try_emplace((record.tools.is_null() ? "" : "tools ") +
                                                    record.template_kwargs.dump());
  if (!is_new) return found->second;
  const auto message = [](const char* role) {
    return ordered_json{{"role", role}, {"content", "x"}};
  };
  ChatRecord probe{.messages = ordered_json::array({message("user")}),
                   .tools = record.tools.is_null() ? ordered_json() : ordered_json::array(),
                   .template_kwargs = record.template_kwargs,
                   .losses = {}};
  try {
    const RenderedChat prompt = render(probe, /*add_generation_prompt=*/true);
    const MessageRange question = message_ranges(prompt, 1)[0];
    probe.messages.push_back(message("assistant"));
    const RenderedChat chat = render(probe, /*add_generation_prompt=*/false);
    const MessageRange answer = message_ranges(chat, 2)[1];
    if (!question.all || !answer.written) return found->second;
    const std::string_view before = std::string_view(chat.text).substr(
        answer.all->begin, answer.written->begin - answer.all->begin);
    std::string_view added = std::string_view(prompt.text).substr(question.all->end);
    size_t shared = 0;
    for (; !added.empty(); added.remove_prefix(1)) {
      shared = std::max(shared, common_prefix(before, added));
    }
    found->second = before.substr(0, shared);
  } catch (const Error&) {  // the template takes no such chat
  }
  return found->second;
}

bool ChatEncoder::places_text_parts() {
  if (places_text_parts_) return *places_text_parts_;
  places_text_parts_ = false;
  const ordered_json parts = {{{"type", "text"}, {"text", "x"}}};
  try {
    const RenderedChat chat = render(
        {.messages = {{{"role", "user"}, {"content", parts}}}, .tools = nullptr, .losses = {}},
        /*add_generation_prompt=*/false);
    // A template that prints the list itself renders more than its text.
    for (const SourceRange& part : chat.sources) {
      if (is_written(part.field)) places_text_parts_ = part.end - part.begin == 1;
    }
  } catch (const Error&) {  // nor does it take such a chat
  }
  return *places_text_parts_;
}

// Returns the assistant's turns, which the template's marks decide about if it has them, and the
// messages of other roles about which the record says something.
std::vector<Turn> ChatEncoder::find_turns(const ChatRecord& record, const RenderedChat& chat,
                                          std::span<const MessageRange> ranges,
                                          std::span<const SpecialToken> special) {
  const bool has_marks = !chat.generation.empty();
  const std::string no_header;
  const std::string& words_before = has_marks ? no_header : header(record);
  std::vector<Turn> turns;
  if (has_marks) turns = marked_turns(chat, special);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool answers = is_answer(record.messages[i]);
    const bool is_named =
        record.losses[i] == MessageLoss::kTrained || record.losses[i] == MessageLoss::kMasked;
    const bool is_turn = answers ? !has_marks : is_named && ranges[i].written;
    if (!is_turn || !ranges[i].all) continue;
    const size_t end = ranges[i].all->end;
    size_t limit = chat.text.size();
    for (const SourceRange& other : chat.sources) {
      if (other.begin >= end && other.message != i) limit = std::min(limit, other.begin);
    }
    const size_t begin = find_begin(chat.text, ranges[i], answers ? words_before : no_header);
    const size_t written = ranges[i].written ? ranges[i].written->end : begin;
    const auto last = find_end(chat.text, special, written, end, limit);
    const Turn turn{
        .message = i, .range = {begin, last.value_or(written)}, .has_end = last.has_value()};
    if (turn.range.begin < turn.range.end) turns.push_back(turn);
  }
  return turns;
}

bool ChatEncoder::trains(const ChatRecord& record, size_t message) const {
  switch (record.losses[message]) {
    case MessageLoss::kTrained:
      return true;
    case MessageLoss::kMasked:
      return false;
    case MessageLoss::kPrompt:
      return options_.train_on == TrainOn::kAll;
    case MessageLoss::kDefault:
      break;
  }
  if (options_.train_on != TrainOn::kLastAssistant) return true;
  for (size_t later = message + 1; later < record.messages.size(); ++later) {
    if (is_answer(record.messages[later])) return false;
  }
  return true;
}

void ChatEncoder::count_missing(const ChatRecord& record, const RenderedChat& chat,
                                std::span<const MessageRange> ranges) {
  std::set<std::pair<size_t, std::string_view>> rendered;
  for (const SourceRange& part : chat.sources) rendered.emplace(part.message, part.field);
  for (size_t i = 0; i < record.messages.size(); ++i) {
    const auto& all = ranges[i].all;
    const auto words = all ? std::string_view(chat.text).substr(all->begin, all->end - all->begin)
                           : std::string_view();
    const std::string role = record.messages[i].value("role", "");
    for (const auto& [field, value] : record.messages[i].items()) {
      if (!is_written(field) || is_blank(value)) continue;
      if (!rendered.contains({i, field})) {
        ++counts_.missing_fields[fmt::format("{} of role {}", field, role)];
      } else if (!holds_thoughts_of(value, words)) {
        ++counts_.missing_fields[fmt::format("the thoughts in {} of role {}", field, role)];
      }
    }
  }
  if (!record.tools.is_null() && !holds_names_of(record.tools, template_text(chat)))
    ++counts_.missing_fields["tools"];
}

// Counts the messages in whose words the tokenizer finds special tokens.
void ChatEncoder::count_special_tokens(const RenderedChat& chat,
                                       std::span<const SpecialToken> special) {
  std::set<size_t> messages;
  auto token = special.begin();
  for (const SourceRange& part : chat.sources) {
    while (token != special.end() && token->range.end <= part.begin) ++token;
    if (token == special.end()) break;
    if (token->range.begin < part.end && is_written(part.field)) messages.insert(part.message);
  }
  counts_.with_special_tokens += std::ssize(messages);
}

}  // namespace zeroth::data
