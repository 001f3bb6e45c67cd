#include "data/records/messages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/records/record_fields.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

// Members that data sets with the same columns for all messages set to null.
constexpr std::string_view kAbsentIfNull[] = {"tool_calls",        "tool_call_id", "name",
                                              "reasoning_content", "reasoning",    "thinking"};
// Those of OpenAI and ms-swift turn off what an assistant wrote; axolotl's also turn on what others
// did.
constexpr std::string_view kAnswerSwitches[] = {"weight", "loss"};
constexpr std::string_view kAnySwitches[] = {"training", "train"};
constexpr const char* kReasoning[] = {"reasoning_content", "reasoning", "thinking"};

// Fields of a record or a message that are refused unless they are empty.
struct RefusedField {
  const char* name;
  const char* reason;
};
constexpr const char* kTextOnly = "training is on text only; remove these records";
constexpr const char* kLossForm = "remove it, or write 'training', true or false";
constexpr RefusedField kRefusedMessageFields[] = {{"masked", kLossForm},
                                                  {"loss_scale", kLossForm},
                                                  {"train_detail", kLossForm},
                                                  {"training_detail", kLossForm}};
constexpr RefusedField kRefusedFields[] = {
    {"images", kTextOnly},
    {"image", kTextOnly},
    {"videos", kTextOnly},
    {"video", kTextOnly},
    {"audios", kTextOnly},
    {"audio", kTextOnly},
    {"functions",
     "it is OpenAI's old form: write 'tools', each {'type': 'function', 'function': ...}"},
    {"function_call", "it is OpenAI's old form: write 'tool_calls'"}};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_switch(std::string_view name) {
  return contains(kAnswerSwitches, name) || contains(kAnySwitches, name);
}

void refuse_fields(const ordered_json& object, std::span<const RefusedField> fields) {
  for (const auto& [name, reason] : fields) {
    if (is_blank(object, name)) continue;
    throw Error("field '{}' is not supported: {}", name, reason);
  }
}

// Replaces a string by the JSON that it contains. `name` is the field's.
void parse_if_string(ordered_json& value, const char* name) {
  if (!value.is_string()) return;
  value = parse_ordered_json(value.get<std::string>(), {.name = name, .exact_integers = true});
}

void require(bool valid, const char* name, const ordered_json& value, const char* expected) {
  if (!valid) throw Error("'{}' is {}, not {}", name, json_type_name(value), expected);
}

void normalize_calls(ordered_json& calls) {
  parse_if_string(calls, "tool_calls");
  require(calls.is_array(), "tool_calls", calls, "an array");
  for (ordered_json& call : calls) {
    require(call.is_object(), "tool_calls", call, "an array of objects");
    ordered_json& function = find_member(call, "function") == nullptr ? call : call["function"];
    require(function.is_object(), "function", function, "an object");
    string_field(function, "name");
    if (find_member(function, "arguments") == nullptr) continue;
    parse_if_string(function["arguments"], "arguments");
    require(function["arguments"].is_object(), "arguments", function["arguments"], "an object");
  }
}

// Converts the message of a ShareGPT function_call to one with "tool_calls".
void convert_call(ordered_json& message) {
  ordered_json calls = message.value("content", ordered_json());
  parse_if_string(calls, kCallRole);
  if (!calls.is_array()) calls = ordered_json::array({std::move(calls)});
  for (ordered_json& call : calls) {
    require(call.is_object(), kCallRole, call, "an object with 'name' and 'arguments'");
    if (!call.contains("function")) call = {{"type", "function"}, {"function", std::move(call)}};
  }
  message["content"] = "";
  message["tool_calls"] = std::move(calls);
}

void check_part(const ordered_json& part, const char* field) {
  require(part.is_object(), field, part, "a string or an array of text parts");
  const std::string& type = string_field(part, "type");
  if (type != "text") {
    throw Error("a part of type '{}' is not supported: {}", shortened(type), kTextOnly);
  }
  string_field(part, "text");
}

// Checks the content, which is `field` in the record.
void check_content(const ordered_json& message, const char* field) {
  const bool has_other = !is_blank(message, "tool_calls") ||
                         std::any_of(std::begin(kReasoning), std::end(kReasoning),
                                     [&](const char* name) { return message.contains(name); });
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (has_other) return;
    throw Error("{}: only a message with tool_calls or reasoning can be without it",
                content == message.end() ? fmt::format("no field '{}'", field)
                                         : fmt::format("'{}' is null", field));
  }
  if (content->is_array()) {
    for (const ordered_json& part : *content) check_part(part, field);
  } else {
    require(content->is_string(), field, *content, "a string or an array of text parts");
  }
}

bool is_trained(const std::string& name, const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0 || value == 1) return value == 1;
  throw Error("'{}' is {}: write 1 or true to train this message, 0 or false to leave it out", name,
              quoted(value));
}

// A MessageReader converts messages of one record.
class MessageReader {
 public:
  explicit MessageReader(const MessageTags& tags) : tags_(tags) {}

  void add(ChatRecord& chat, const ordered_json& source) {
    if (!source.is_object()) {
      throw Error("it is {}, not an object with '{}' and '{}'", json_type_name(source), tags_.role,
                  tags_.content);
    }
    refuse_fields(source, kRefusedFields);
    refuse_fields(source, kRefusedMessageFields);
    ordered_json message = ordered_json::object();
    for (const auto& [name, value] : source.items()) {
      if (value.is_null() && contains(kAbsentIfNull, name)) continue;
      if (is_switch(name)) continue;
      if (name == tags_.role || name == tags_.content) {
        message[name == tags_.role ? "role" : "content"] = value;
      } else if (name != "role" && name != "content") {
        message[name] = value;
      }
    }
    convert_role(message);
    if (message.contains("tool_calls")) normalize_calls(message["tool_calls"]);
    check_content(message, tags_.content.c_str());
    chat.losses.push_back(loss_of(source, message["role"] == "assistant"));
    chat.messages.push_back(std::move(message));
  }

 private:
  static MessageLoss loss_of(const ordered_json& source, bool is_answer) {
    MessageLoss loss = MessageLoss::kDefault;
    for (const auto& [name, value] : source.items()) {
      if (value.is_null() || !is_switch(name)) continue;
      const bool turns_on = is_answer || contains(kAnySwitches, name);
      if (!is_trained(name, value)) {
        loss = MessageLoss::kMasked;
      } else if (turns_on && loss == MessageLoss::kDefault) {
        loss = MessageLoss::kTrained;
      }
    }
    return loss;
  }

  void convert_role(ordered_json& message) {
    if (!message.contains("role")) throw Error("no field '{}'", tags_.role);
    const ordered_json& tag = message["role"];
    const auto role =
        std::find_if(tags_.roles.begin(), tags_.roles.end(),
                     [&](const MessageTags::Role& known) { return known.tag == tag; });
    if (role == tags_.roles.end()) {
      throw Error("unknown {} {}: it must be one of {}", tags_.role, quoted(tag), known_tags());
    }
    if (role->name == "assistant") {
      // Logs of several assistants are no turns of one.
      if (!assistant_tag_.empty() && assistant_tag_ != role->tag) {
        throw Error("{} '{}' after '{}': both are the assistant's, so use one of them ({})",
                    tags_.role, role->tag, assistant_tag_, known_tags());
      }
      assistant_tag_ = role->tag;
    }
    const bool is_call = role->name == kCallRole;
    message["role"] = is_call ? "assistant" : role->name;
    if (is_call) convert_call(message);
  }

  std::string known_tags() const {
    std::vector<std::string_view> names;
    for (const auto& role : tags_.roles) {
      if (!contains(names, role.tag)) names.push_back(role.tag);
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  const MessageTags& tags_;
  std::string assistant_tag_;  // the first one in the record
};

void add_system_message(ChatRecord& chat, const ordered_json& record, const std::string& field) {
  if (is_blank(record, field)) return;
  const std::string& text = string_field(record, field);
  if (chat.messages.front()["role"] == "system") {
    const ordered_json* content = find_member(chat.messages.front(), "content");
    if (content != nullptr && *content == text) return;
    throw Error("field '{}' and the first message are two system messages: remove one", field);
  }
  const ordered_json message = {{"role", "system"}, {"content", text}};
  chat.messages.insert(chat.messages.begin(), message);
  chat.losses.insert(chat.losses.begin(), MessageLoss::kDefault);
}

void add_tools(ChatRecord& chat, const ordered_json& record, const std::string& field) {
  if (is_blank(record, field)) return;
  chat.tools = record[field];
  parse_if_string(chat.tools, field.c_str());
  if (chat.tools.is_null()) return;
  require(chat.tools.is_array(), field.c_str(), chat.tools, "an array");
  for (const ordered_json& tool : chat.tools) {
    require(tool.is_object(), field.c_str(), tool, "an array of objects");
  }
  if (chat.tools.empty()) chat.tools = nullptr;
}

}  // namespace

MessageTags template_tags() {
  MessageTags tags;
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "ipython"}) {
    tags.roles.push_back({role, role});
  }
  return tags;
}

MessageTags sharegpt_tags() {
  return {.role = "from",
          .content = "value",
          .roles = {{"human", "user"},
                    {"user", "user"},
                    {"gpt", "assistant"},
                    {"assistant", "assistant"},
                    {"chatgpt", "assistant"},
                    {"bing", "assistant"},
                    {"bard", "assistant"},
                    {"system", "system"},
                    {"function_call", kCallRole},
                    {"observation", "tool"},
                    {"tool", "tool"}}};
}

void add_message(ChatRecord& chat, const char* role, const std::string& content, MessageLoss loss) {
  chat.messages.push_back({{"role", role}, {"content", content}});
  chat.losses.push_back(loss);
}

void add_messages(ChatRecord& chat, const ordered_json& record, const std::string& field,
                  const MessageTags& tags) {
  MessageReader reader(tags);
  size_t index = 0;
  for (const ordered_json& message : array_field(record, field, "messages")) {
    try {
      reader.add(chat, message);
    } catch (const Error& error) {
      throw Error("{}[{}]: {}", field, index, error.what());
    }
    ++index;
  }
}

void add_pairs(ChatRecord& chat, const ordered_json& record, const std::string& field,
               MessageLoss loss) {
  size_t index = 0;
  for (const ordered_json& pair : array_field(record, field, "messages")) {
    if (pair.is_object()) {
      add_message(chat, "user", string_field(pair, pair.contains("user") ? "user" : "human"));
      add_message(chat, "assistant", string_field(pair, "assistant"), loss);
    } else if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
      add_message(chat, "user", pair[0]);
      add_message(chat, "assistant", pair[1], loss);
    } else {
      throw Error("{}[{}] is not a pair of a question and an answer", field, index);
    }
    ++index;
  }
}

void finish_chat(ChatRecord& chat, const ordered_json& record, const std::string& system_field,
                 const std::string& tools_field, size_t first_answer) {
  refuse_fields(record, kRefusedFields);
  bool has_answer = false;
  for (size_t i = first_answer; i < chat.messages.size(); ++i) {
    has_answer = has_answer || chat.messages[i]["role"] == "assistant" ||
                 chat.losses[i] == MessageLoss::kTrained;
  }
  if (!has_answer) {
    throw Error("nothing to train: there is no message of the assistant");
  }
  add_system_message(chat, record, system_field);
  add_tools(chat, record, tools_field);
  if (const ordered_json* kwargs = find_member(record, "chat_template_kwargs")) {
    chat.template_kwargs = *kwargs;
    parse_if_string(chat.template_kwargs, "chat_template_kwargs");
    require(chat.template_kwargs.is_object(), "chat_template_kwargs", *kwargs, "an object");
  }
}

size_t join_text_parts(ChatRecord& chat) {
  size_t count = 0;
  for (ordered_json& message : chat.messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string text;
    for (const ordered_json& part : *content) text += string_field(part, "text");
    *content = std::move(text);
    ++count;
  }
  return count;
}

}  // namespace zeroth::data
