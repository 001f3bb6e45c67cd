#include "data/chat_template/chat_template.h"

#include <map>
#include <sstream>

#include "tests/data/template_cases.h"

namespace zeroth::data::chat_template_test {

namespace {

std::string read_file(const std::string& name) {
  std::ifstream file(fixture("chat_template/" + name), std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the conversations by their ids.
std::map<std::string, nlohmann::ordered_json> read_conversations() {
  std::map<std::string, nlohmann::ordered_json> records;
  std::istringstream lines(read_file("conversations.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::ordered_json::parse(line);
    records[record["id"]] = record;
  }
  return records;
}

std::string part(const RenderedChat& chat, size_t i) {
  return chat.text.substr(chat.sources[i].begin, chat.sources[i].end - chat.sources[i].begin);
}

constexpr const char* kMessages = R"({"messages": [{"role": "user", "content": " Hi <b> "},
  {"role": "assistant", "content": "Yo", "tool_calls": [{"a": 1, "b": "x"}]}]})";

}  // namespace

TEST_CASE("Real templates render conversations as transformers does, or are refused as there") {
  const auto records = read_conversations();
  const auto fixture = read_ordered_fixture("chat_template/renderings.json");
  for (const auto& entry : fixture["cases"]) {
    const std::string name = entry["template"];
    const std::string id = entry["id"];
    CAPTURE(name);
    CAPTURE(id);
    const auto& record = records.at(id);
    nlohmann::ordered_json context = {{"messages", record["messages"]},
                                      {"tools", record.value("tools", nlohmann::ordered_json())},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", id.ends_with('s')}};
    context.update(fixture["tokens"][name]);
    context.update(record.value("chat_template_kwargs", nlohmann::ordered_json::object()));
    const auto text = try_render(read_file("templates/" + name + ".jinja"), context);
    CHECK(text.has_value() == entry["text"].is_string());
    if (text && entry["text"].is_string()) CHECK(*text == entry["text"].get<std::string>());
  }
}

TEST_CASE("Each range of the text knows the message and the field that it came from") {
  const RenderedChat chat = render_chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content|trim|replace('b', 'i') }}|"
      "{% endfor %}{{ messages[1].tool_calls|tojson }}",
      kMessages);
  CHECK(chat.text == "<user>Hi <i>|<assistant>Yo|[{\"a\": 1, \"b\": \"x\"}]");
  std::string all;
  for (size_t i = 0; i < chat.sources.size(); ++i) {
    all += fmt::format("{} {} {}\n", chat.sources[i].message, chat.sources[i].field, part(chat, i));
  }
  // The template's own words, without a field, while the loop is at a message.
  CHECK(all ==
        "0  <\n0 role user\n0  >\n0 content Hi <\n0  i\n0 content >\n0  |\n"
        "1  <\n1 role assistant\n1  >\n1 content Yo\n1  |\n"
        "1 tool_calls [{\"a\": 1, \"b\": \"x\"}]\n");
}

TEST_CASE("Sources pass through macros, slices, splits, joins and set blocks") {
  const RenderedChat chat = render_chat(
      "{% macro f(x) %}({{ x[1:] }}){% endmacro %}{% set c = messages[0].content %}"
      "{{ f(c.split('<')[0]) }}{% set b %}{{ c|upper }}{% endset %}{{ [b, '!']|join('-') }}",
      kMessages);
  CHECK(chat.text == "(Hi ) HI <B> -!");
  REQUIRE(chat.sources.size() == 2);
  CHECK(part(chat, 0) == "Hi ");
  CHECK(part(chat, 1) == " HI <B> ");
}

TEST_CASE("Text inside generation blocks is marked, also in a macro") {
  const RenderedChat chat = render_chat(
      "a{% generation %}b{{ messages[1].content }}{% endgeneration %}c"
      "{% macro f() %}x{% generation %}y{% endgeneration %}{% endmacro %}{{ f() }}",
      kMessages);
  CHECK(chat.text == "abYocxy");
  REQUIRE(chat.generation.size() == 2);
  CHECK(chat.generation[0].begin == 1);
  CHECK(chat.generation[0].end == 4);
  CHECK(chat.generation[1].begin == 6);
  REQUIRE(chat.sources.size() == 1);
  CHECK(part(chat, 0) == "Yo");
}

TEST_CASE("Limits of steps, output and memory are errors that name them") {
  const std::string loop =
      "{% for i in range(1000) %}{% for j in range(1000) %}{{ 'abcdefgh' }}{% endfor %}"
      "{% endfor %}";
  const auto error = [&](const RenderLimits& limits) {
    return error_of([&] { render_chat(loop, "{}", limits); });
  };
  check_contains(error({.max_steps = 1000}), "more than the limit of 1000 steps");
  check_contains(error({.max_output_bytes = 5000}), "longer than the limit of 5000 bytes");
  check_contains(render_error("{{ 'a' * 10 ** 9 }}"), "more memory than the limit");
  check_contains(render_error("{{ 'a' * 10 ** 18 }}"), "more memory than the limit");
  check_contains(render_error("{{ [1] * 10 ** 18 }}"), "more memory than the limit");
  check_contains(render_error("{% set n = namespace(l=[]) %}{% for i in range(1000) %}"
                              "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"),
                 "nested deeper than");
}

TEST_CASE("Sources that are no text, or too large, are errors") {
  CHECK(render_error("a\n\xff") == "t.jinja:2:1: the template is not UTF-8");
  check_contains(render_error(std::string(300 << 10, 'a')), "more than the limit of 262144");
}

}  // namespace zeroth::data::chat_template_test
