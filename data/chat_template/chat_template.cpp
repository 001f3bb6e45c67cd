#include "data/chat_template/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat_template/template_evaluator.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using jinja::Arena;
using jinja::Kind;
using jinja::Pair;
using jinja::SourceId;
using jinja::Value;
using nlohmann::ordered_json;

constexpr size_t kMaxSourceBytes = size_t{256} << 10;

[[noreturn]] void throw_at(std::string_view name, std::string_view source, size_t offset,
                           std::string_view message) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::string_view last = before.substr(before.rfind('\n') + 1);
  const auto column =
      std::count_if(last.begin(), last.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  throw Error("{}:{}:{}: {}", name, line, column + 1, message);
}

// Makes values of the context. Strings refer to its bytes.
class ContextReader {
 public:
  explicit ContextReader(Arena& arena) : arena_(arena) { sources_.reserve(32); }

  struct Source {
    size_t message;
    std::string_view field;
  };

  const std::vector<Source>& sources() const { return sources_; }

  Value read_variable(const std::string& name, const ordered_json& json) {
    if (name != "messages" || !json.is_array()) return read(json, 0, 0);
    return new_list(json.size(), [&](size_t i) { return read(json[i], 0, 1, &i); });
  }

 private:
  // Reads a value. Each field of the message with this index is a source, and the message itself.
  Value read(const ordered_json& json, SourceId source, int depth,
             const size_t* message = nullptr) {
    arena_.charge(1);
    if (depth > jinja::kMaxDepth) {
      throw jinja::TemplateFailure("the context is nested deeper than {}", jinja::kMaxDepth);
    }
    Value value = Value::none();
    if (json.is_string()) {
      value = read_string(json.get_ref<const std::string&>(), source);
    } else if (json.is_array()) {
      value = new_list(json.size(), [&](size_t i) { return read(json[i], source, depth + 1); });
    } else if (json.is_object()) {
      auto* const pairs = arena_.create_array<Pair>(json.size());
      size_t count = 0;
      for (const auto& [key, item] : json.get_ref<const ordered_json::object_t&>()) {
        if (message != nullptr) sources_.push_back({*message, key});
        const auto field = message ? static_cast<SourceId>(sources_.size()) : source;
        pairs[count++] = {read_string(key, source), read(item, field, depth + 1)};
      }
      if (message != nullptr) {
        sources_.push_back({*message, ""});
        source = static_cast<SourceId>(sources_.size()) | jinja::kMessage;
      }
      value.kind = Kind::kDict;
      value.dict = arena_.create(jinja::Dict{pairs, count});
    } else if (json.is_boolean()) {
      value = Value::of_bool(json.get<bool>());
    } else if (json.is_number_float()) {
      value = Value::of_float(json.get<double>());
    } else if (json.is_number()) {
      value = jinja::parse_integer(arena_, json.dump());
    }
    value.source = source;
    return value;
  }

  template <typename ReadItem>
  Value new_list(size_t size, const ReadItem& read_item) {
    auto* const items = arena_.create_array<Value>(size);
    for (size_t i = 0; i < size; ++i) items[i] = read_item(i);
    Value list(Kind::kList);
    list.sequence = arena_.create(jinja::Sequence{.items = items, .size = size});
    return list;
  }

  Value read_string(const std::string& text, SourceId source) {
    const Value value = jinja::view_string(arena_, text, source);
    if (value.string->length() != text.size() && find_invalid_utf8(text)) {
      throw jinja::TemplateFailure("the context has a string that is not UTF-8");
    }
    return value;
  }

  Arena& arena_;
  std::vector<Source> sources_;
};

void add_ranges(const jinja::Span& span, const ContextReader& context, RenderedChat& chat) {
  if ((span.source & jinja::kGenerated) != 0) {
    if (!chat.generation.empty() && chat.generation.back().end == span.begin) {
      chat.generation.back().end = span.end;
    } else {
      chat.generation.push_back({span.begin, span.end});
    }
  }
  const SourceId id = span.source & ~(jinja::kGenerated | jinja::kMessage);
  if (id == 0) return;
  const auto& source = context.sources()[id - 1];
  chat.sources.push_back({span.begin, span.end, source.message, std::string(source.field)});
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view source, std::string name) {
  if (source.size() > kMaxSourceBytes) {
    throw Error("{}: the template has {} bytes, which is more than the limit of {}", name,
                source.size(), kMaxSourceBytes);
  }
  if (const auto offset = find_invalid_utf8(source)) {
    throw_at(name, source.substr(0, *offset), *offset, "the template is not UTF-8");
  }
  const auto tree = std::make_shared<jinja::Template>();
  tree->source = jinja::normalize_newlines(source);
  try {
    jinja::parse(*tree);
  } catch (const jinja::TemplateFailure& failure) {
    throw_at(name, tree->source, failure.offset.value_or(0), failure.what());
  }
  return {tree, std::move(name)};
}

RenderedChat ChatTemplate::render(const ordered_json& context, const RenderOptions& options) const {
  if (!context.is_object()) throw Error("{}: the context is no object", name_);
  Arena arena(options.limits.max_memory_bytes, options.limits.max_steps);
  ContextReader reader(arena);
  jinja::Evaluator::Context variables{.variables = {}, .now = options.now};
  jinja::TextBuilder out(arena, std::max<size_t>(options.limits.max_output_bytes, 1));
  std::optional<jinja::Evaluator> evaluator;
  try {
    for (const auto& [key, value] : context.get_ref<const ordered_json::object_t&>()) {
      variables.variables.emplace_back(key, reader.read_variable(key, value));
    }
    evaluator.emplace(*tree_, arena, variables);
    evaluator->render(out);
  } catch (const jinja::TemplateFailure& failure) {
    throw_at(name_, tree_->source, evaluator ? evaluator->offset() : 0, failure.what());
  }
  RenderedChat chat;
  chat.sources.reserve(out.spans().size());
  for (const jinja::Span& span : out.spans()) add_ranges(span, reader, chat);
  chat.text = out.take_text();
  return chat;
}

}  // namespace zeroth::data
