// Meaning of a record's fields.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/samples/record_reader.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr std::string_view kPrompts[] = {"prompt", "question", "instruction", "input", "query"};
constexpr std::string_view kCompletions[] = {"completion", "answer", "output", "response"};
constexpr size_t kMaxShown = 12;

// RecordKind is a kind of record that is recognized by a field, and not supported for training yet.
struct RecordKind {
  std::string_view field;
  std::string_view name;
  std::string_view remedy;
};
constexpr const char* kAsPairs =
    "write each as a prompt and a completion, with the model's chat template applied";
constexpr const char* kChosenOnly =
    "training on preferences is not supported yet; --prompt-field and --completion-field train on "
    "one of the answers";
constexpr RecordKind kRecordKinds[] = {
    {"input_ids", "token ids",
     "ids are read from a .bin file only (--token-dtype); or write the text itself"},
    {"messages", "chats", kAsPairs},
    {"conversations", "ShareGPT chats", kAsPairs},
    {"chosen", "preferences", kChosenOnly},
    {"rejected", "preferences", kChosenOnly}};

std::string list_fields(const json& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) {
    if (names.size() == kMaxShown) {
      names.emplace_back("...");
      break;
    }
    names.push_back("'" + shortened(name, 40) + "'");
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> present_names(const json& record,
                                       std::span<const std::string_view> names) {
  std::vector<std::string> found;
  for (const std::string_view name : names) {
    if (record.contains(name)) found.emplace_back(name);
  }
  return found;
}

}  // namespace

SampleFields choose_fields(const json& first_record) {
  const auto prompts = present_names(first_record, kPrompts);
  const auto completions = present_names(first_record, kCompletions);
  const bool usual = first_record.contains("prompt") && first_record.contains("completion");
  if (first_record.contains("text")) {
    if (!usual) return {.text = "text"};
    throw Error(
        "both 'text' and 'prompt' with 'completion': name the pair with --prompt-field and "
        "--completion-field, or remove it to train on 'text'");
  }
  if (usual && (first_record["prompt"].is_array() || first_record["completion"].is_array())) {
    throw Error("the records are chats, as 'prompt' or 'completion' is an array: {}", kAsPairs);
  }
  if (usual) return {.prompt = "prompt", .completion = "completion"};
  for (const RecordKind& kind : kRecordKinds) {
    if (!first_record.contains(kind.field)) continue;
    throw Error("the records are {} (fields {}): {}", kind.name, list_fields(first_record),
                kind.remedy);
  }
  if (prompts.size() == 1 && completions.size() == 1) {
    return {.prompt = prompts.front(), .completion = completions.front(), .guessed = true};
  }
  if (!prompts.empty() && !completions.empty()) {
    const bool alpaca = prompts == std::vector<std::string>{"instruction", "input"};
    throw Error(
        "{} (fields {}): several could be prompt or completion, and joining them is not supported "
        "yet; --prompt-field {} --completion-field {} trains on these two only",
        alpaca ? "the records are in Alpaca format" : "the records are ambiguous",
        list_fields(first_record), prompts.front(), completions.front());
  }
  throw Error(
      "neither 'text' nor 'prompt' and 'completion' (fields {}): name the fields with "
      "--prompt-field and --completion-field",
      list_fields(first_record));
}

}  // namespace zeroth::data
