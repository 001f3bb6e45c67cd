#include "configs/schema/json_text.h"

#include "tests/configs/support.h"

namespace zeroth::configs::json_text_test {
namespace {

std::string syntax_error(const std::string& text) {
  try {
    parse_json(text, "f.json");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("comments of three kinds are accepted, and none within strings") {
  const ParsedJson parsed = parse_json(
      "// a\n{ # b \"x\"\n \"k\": /* c # */ \"# // /* kept \\\" */\", \"n\": 1 // # d\n}",
      "f.json");
  CHECK(parsed.root["k"] == "# // /* kept \" */");
  CHECK(parsed.root["n"] == 1);
  CHECK(parsed.duplicate_keys.count == 0);
}

TEST_CASE("duplicate keys are found at any depth, with their path") {
  const ParsedJson parsed = parse_json(
      R"({"a": {"b": 1, "c": {"d": 1, "d": 2}, "b": 2}, "l": [{}, {"x": 1, "x": 1}], "a": 3})",
      "f.json");
  CHECK(parsed.duplicate_keys.paths == std::vector<std::string>{"a.c.d", "a.b", "l[1].x", "a"});
}

TEST_CASE("the same key in different objects is no duplicate") {
  CHECK(parse_json(R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})", "f.json")
            .duplicate_keys.count == 0);
}

TEST_CASE("a syntax error names file, line, column and path") {
  CHECK(syntax_error("{\n  \"fp16\": {\n    \"loss_scale\": Nan\n  }\n}")
            .starts_with("f.json:3:19: fp16.loss_scale: not JSON: unexpected 'Nan'"));
  CHECK(syntax_error("{\"fp16\": {\"loss_scale\": 1e999}}")
            .find("fp16.loss_scale: the number 1e999 is out of range") != std::string::npos);
  CHECK(syntax_error("{\"a\": 1\n \"b\": 2}").starts_with("f.json:2:4: a: not JSON: unexpected"));
  CHECK(syntax_error("").starts_with("f.json:1:1: not JSON: it ends here"));
  CHECK(syntax_error("{\"a\": 1,}").starts_with("f.json:1:9: a: "));
  CHECK(syntax_error("{} x").starts_with("f.json:1:4: "));
  CHECK(syntax_error("{\"a\": [1, {\"b\": }]}").starts_with("f.json:1:17: a[1].b: "));
}

TEST_CASE("a comment may hold anything and has an end") {
  CHECK(parse_json("{/**/\"a\"/* \xff \" */:/*/ */1}", "f").root["a"] == 1);
  CHECK(syntax_error("{} /* [").starts_with("f.json:1:4: not JSON: a comment without its closing"));
  CHECK(syntax_error("{}\n/*/").starts_with("f.json:2:1: not JSON: a comment"));
}

TEST_CASE("a configuration that is too deep or too large is refused before it is read") {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  CHECK(syntax_error(deep) == "f.json:1:641: nested deeper than 128 levels");
  std::string wide = "[0";
  for (int i = 0; i < 300'000; ++i) wide += ",0";
  CHECK(syntax_error(wide + "]").find("more than 300000 values") != std::string::npos);
}

TEST_CASE("the numbers that Python writes and JSON does not have are numbers") {
  const auto root = parse_json(R"({"a": NaN, "b": [Infinity, -Infinity], "c": "NaN"})", "f").root;
  CHECK(std::isnan(root["a"].get<double>()));
  CHECK(root["b"][0].get<double>() == INFINITY);
  CHECK(root["b"][1].get<double>() == -INFINITY);
  CHECK(root["c"] == "NaN");
  CHECK(syntax_error("{\"a\": Infinity,\n \"b\": x}").starts_with("f.json:2:7: b: "));
}

TEST_CASE("base64 comes in both alphabets, with and without padding") {
  CHECK(decode_base64("eyJhIjogMX0=") == "{\"a\": 1}");
  CHECK(decode_base64("eyJhIjogMX0") == "{\"a\": 1}");
  CHECK(decode_base64("-_-_") == decode_base64("+/+/"));
  CHECK_FALSE(decode_base64("a.json").has_value());
  CHECK_FALSE(decode_base64("abcde").has_value());
  CHECK_FALSE(decode_base64("").has_value());
}

}  // namespace zeroth::configs::json_text_test
