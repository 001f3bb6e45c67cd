#include "data/samples/chat_encoder.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::model_templates_test {
namespace {

using nlohmann::ordered_json;

std::string render(const std::optional<ChatTemplate>& chat) {
  return chat ? chat->render(ordered_json::object()).text : "none";
}

}  // namespace

TEST_CASE("A model without a template has none") {
  TempFolder directory;
  const ModelTemplates empty = read_model_templates(directory.path());
  CHECK_FALSE(empty.chat);
  CHECK(empty.special_tokens.empty());
  directory.write("tokenizer_config.json", R"({"chat_template": null})");
  CHECK_FALSE(read_model_templates(directory.path()).chat);
}

TEST_CASE("A template is in tokenizer_config.json, alone or among named ones") {
  TempFolder directory;
  directory.write("tokenizer_config.json", R"({"chat_template": "one"})");
  CHECK(render(read_model_templates(directory.path()).chat) == "one");
  CHECK_FALSE(read_model_templates(directory.path()).tools);
  directory.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "two"},
      {"name": "rag", "template": "other"}]})");
  const ModelTemplates named = read_model_templates(directory.path());
  CHECK(render(named.chat) == "two");
  CHECK(render(named.tools) == "tools");
}

TEST_CASE("A file of its own wins, and has the template for tools beside it") {
  TempFolder directory;
  directory.write("tokenizer_config.json", R"({"chat_template": "config"})");
  directory.write("chat_template.jinja", "file");
  const ModelTemplates file = read_model_templates(directory.path());
  CHECK(render(file.chat) == "file");
  CHECK_FALSE(file.tools);
  std::filesystem::create_directory(directory / "additional_chat_templates");
  directory.write("additional_chat_templates/tool_use.jinja", "tools");
  ModelTemplates both = read_model_templates(directory.path());
  CHECK(render(both.tools) == "tools");
  CHECK(both.digest != file.digest);
  use_template_file(directory.write("own.jinja", "own"), both);
  CHECK(render(both.chat) == "own");
  CHECK_FALSE(both.tools);
}

TEST_CASE("Special tokens have their names and texts, those of tokenizer_config.json first") {
  TempFolder directory;
  directory.write("special_tokens_map.json",
                  R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}})");
  directory.write(
      "tokenizer_config.json",
      R"({"eos_token": "<end>", "pad_token": null, "extra_special_tokens": {"image_token": "<i>"}})");
  const ordered_json expected = {
      {"bos_token", "<b>"}, {"eos_token", "<end>"}, {"image_token", "<i>"}};
  CHECK(read_model_templates(directory.path()).special_tokens == expected);
}

TEST_CASE("What is no template is an Error with its file") {
  TempFolder directory;
  const auto error = [&] { return error_of([&] { read_model_templates(directory.path()); }); };
  directory.write("tokenizer_config.json", R"({"chat_template": 5})");
  check_contains(error(),
                 "tokenizer_config.json: chat_template is 5, expected a template or a list");
  directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  check_contains(error(), "tokenizer_config.json: chat_template is [");
  directory.write("tokenizer_config.json", R"({"chat_template": "a\n{% if %}"})");
  check_contains(error(), "tokenizer_config.json: chat_template 'default':2:");
  directory.write("chat_template.jinja", "{{ x");
  check_contains(error(), "chat_template.jinja:1:");
}

}  // namespace zeroth::data::model_templates_test
