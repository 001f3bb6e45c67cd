// Entries of LLaMA-Factory's dataset_info.json.
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/records/record_format.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

struct Column {
  const char* name;
  std::string RecordFields::*field;
};
constexpr Column kColumns[] = {
    {"prompt", &RecordFields::prompt},       {"query", &RecordFields::input},
    {"response", &RecordFields::completion}, {"history", &RecordFields::history},
    {"messages", &RecordFields::messages},   {"system", &RecordFields::system},
    {"tools", &RecordFields::tools}};

struct Unsupported {
  const char* name;
  const char* reason;
};
constexpr const char* kPreferences = "training on preferences (DPO, KTO) is not supported";
constexpr const char* kTextOnly = "training is on text only";
constexpr Unsupported kUnsupported[] = {
    {"ranking", kPreferences},
    {"chosen", kPreferences},
    {"rejected", kPreferences},
    {"kto_tag", kPreferences},
    {"images", kTextOnly},
    {"videos", kTextOnly},
    {"audios", kTextOnly},
    {"num_samples", "choose the number of samples by a flag, and remove it here"}};

// LLaMA-Factory's names of tags, its defaults, and the roles that they have in a template.
struct Tag {
  const char* name;
  const char* default_tag;
  const char* role;
};
constexpr Tag kTags[] = {{"user_tag", "human", "user"},
                         {"assistant_tag", "gpt", "assistant"},
                         {"observation_tag", "observation", "tool"},
                         {"function_tag", "function_call", kCallRole},
                         {"system_tag", "system", "system"}};

void refuse_unsupported(const ordered_json& object) {
  for (const auto& [name, reason] : kUnsupported) {
    const ordered_json* value = find_member(object, name);
    if (value == nullptr || *value == false) continue;
    throw Error("'{}' is not supported: {}", name, reason);
  }
}

std::string string_or(const ordered_json& object, const char* name, const char* fallback) {
  return find_member(object, name) == nullptr ? fallback : string_field(object, name);
}

// Sets all columns: those that `columns` does not name are not read.
void read_columns(const ordered_json& columns, RecordFields& fields) {
  refuse_unsupported(columns);
  for (const auto& [name, field] : kColumns) fields.*field = string_or(columns, name, "");
  for (const auto& [key, value] : columns.items()) {
    const auto has_name = [&name = key](const auto& known) { return name == known.name; };
    if (std::any_of(std::begin(kColumns), std::end(kColumns), has_name)) continue;
    if (std::any_of(std::begin(kUnsupported), std::end(kUnsupported), has_name)) continue;
    throw Error("'columns' has an unknown name '{}'", shortened(key));
  }
}

MessageTags read_tags(const ordered_json& names) {
  MessageTags tags = {.role = string_or(names, "role_tag", "from"),
                      .content = string_or(names, "content_tag", "value")};
  for (const auto& [name, default_tag, role] : kTags) {
    tags.roles.push_back({string_or(names, name, default_tag), role});
  }
  for (const MessageTags::Role& role : sharegpt_tags().roles) tags.roles.push_back(role);
  return tags;
}

DatasetInfo info_of_chats(const ordered_json& entry, const std::string& formatting,
                          RecordFields fields) {
  if (fields.messages.empty()) {
    throw Error("'columns' resets what it does not name: name 'messages' too");
  }
  fields.prompt = fields.completion = fields.input = fields.history = "";
  const ordered_json* tags = find_member(entry, "tags");
  if (tags != nullptr) fields.tags = read_tags(*tags);
  return {.format = formatting == "openai" ? "messages" : "sharegpt", .fields = fields};
}

DatasetInfo info_of_texts(RecordFields fields) {
  constexpr std::string_view kDocuments[] = {"text", "content", "document"};
  fields.messages = "";
  if (fields.prompt.empty())
    throw Error("'columns' resets what it does not name: name 'prompt' too");
  if (!fields.completion.empty()) return {.format = "alpaca", .fields = fields};
  if (std::count(std::begin(kDocuments), std::end(kDocuments), fields.prompt) == 0) {
    throw Error(
        "'columns' resets what it does not name, so there is no answer to '{0}': name 'response' "
        "too; or, to train on '{0}' alone, name the file itself with --text-field {0}",
        fields.prompt);
  }
  return {.format = "text", .fields = {.text = fields.prompt}};
}

DatasetInfo read_entry(const ordered_json& entry) {
  if (find_member(entry, "file_name") == nullptr) {
    throw Error("no 'file_name': data sets are not downloaded; save it as a file and name that");
  }
  refuse_unsupported(entry);
  RecordFields fields = {.prompt = "instruction",
                         .completion = "output",
                         .messages = "conversations",
                         .history = "",
                         .system = "",
                         .tools = ""};
  if (const ordered_json* columns = find_member(entry, "columns")) read_columns(*columns, fields);
  const std::string formatting = string_or(entry, "formatting", "alpaca");
  if (formatting != "alpaca" && formatting != "sharegpt" && formatting != "openai") {
    throw Error("unknown 'formatting' '{}': it must be one of alpaca, sharegpt, openai",
                shortened(formatting));
  }
  DatasetInfo info = formatting == "alpaca" ? info_of_texts(std::move(fields))
                                            : info_of_chats(entry, formatting, std::move(fields));
  info.file_name = string_field(entry, "file_name");
  return info;
}

}  // namespace

DatasetInfo find_dataset_info(const ordered_json& info, const std::string& name) {
  const ordered_json* entry = info.is_object() ? find_member(info, name) : nullptr;
  if (entry == nullptr || !entry->is_object()) throw Error("no data set '{}'", shortened(name));
  try {
    return read_entry(*entry);
  } catch (const Error& error) {
    throw Error("data set '{}': {}", shortened(name), error.what());
  }
}

DatasetInfo read_dataset_info(const std::filesystem::path& path, const std::string& name) {
  const ordered_json info = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                               {.name = path.string(), .limits = kConfigLimits});
  try {
    return find_dataset_info(info, name);
  } catch (const Error& e) {
    throw Error("{}: {}", path.string(), e.what());
  }
}

}  // namespace zeroth::data
