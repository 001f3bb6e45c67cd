#include "base/json/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <ctime>
#include <functional>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::json_test {
namespace {

const JsonSource kSource{.name = "f.json"};

std::string error_of(const std::string& text, const JsonSource& source = kSource) {
  try {
    parse_json(text, source);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Of the processor, which others may share.
double seconds_of(const std::function<void()>& run) {
  const std::clock_t start = std::clock();
  run();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string repeat(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("a text comes back as the tree that it describes") {
  const auto tree =
      parse_json(R"({"b": [1, -2, 0.5, true, null, {"c": "\u00e4\n"}], "a": {}})", kSource);
  CHECK(tree ==
        nlohmann::json::parse(R"({"a": {}, "b": [1, -2, 0.5, true, null, {"c": "\u00e4\n"}]})"));
  CHECK(parse_json("\xef\xbb\xbf[18446744073709551615]", kSource)[0] == 18446744073709551615U);
  CHECK(parse_json(" 5 ", kSource) == 5);
}

TEST_CASE("an ordered tree keeps the file's order") {
  DuplicateKeys duplicate_keys;
  const auto tree =
      parse_ordered_json(R"({"b": 1, "a": [{"z": 0, "y": {}}], "b": 2})", kSource, &duplicate_keys);
  CHECK(tree.dump() == R"({"b":2,"a":[{"z":0,"y":{}}]})");
  CHECK(duplicate_keys.paths == std::vector<std::string>{"b"});
  CHECK(duplicate_keys.count == 1);
}

TEST_CASE("of a key that stands twice the last counts, or it is refused with its path") {
  const std::string text = R"({"l": [{}, {"x": 1, "x": 2}]})";
  CHECK(parse_json(text, kSource)["l"][1]["x"] == 2);
  JsonSource strict = kSource;
  strict.duplicate_keys = DuplicateKeyPolicy::kReject;
  CHECK(error_of(text, strict) == "f.json:1: duplicate key l[1].x in one object");
}

TEST_CASE("of 200,000 keys that stand twice below a long path twenty are named, and all counted") {
  std::string text;
  for (int level = 0; level < 120; ++level) text += "{\"" + std::string(100, 'k') + "\":";
  text += "{\"x\":0";
  for (int i = 0; i < 200'000; ++i) text += ",\"x\":1";
  text += std::string(121, '}');
  DuplicateKeys duplicate_keys;
  CHECK(parse_ordered_json(text, kSource, &duplicate_keys).is_object());
  CHECK(duplicate_keys.count == 200'000);
  REQUIRE(duplicate_keys.paths.size() == 20);
  CHECK(duplicate_keys.paths.back().size() < 150);
  CHECK(parse_json(text, kSource).is_object());
}

TEST_CASE("what is no JSON is told by line, column, path, what is there and what may be") {
  const auto check = [](const std::string& text, const std::string& error) {
    CHECK(error_of(text) == "f.json:" + error);
  };
  check("", "1:1: not JSON: it ends here, expected a value");
  check("{\n  \"fp16\": {\n    \"scale\": Nan\n  }\n}",
        "3:14: fp16.scale: not JSON: unexpected 'Nan', expected a value");
  check("{\"a\": 1\n \"b\": 2}", "2:4: a: not JSON: unexpected '\"b\"', expected ',' or '}'");
  check("{\"a\": 1,}", "1:9: a: not JSON: unexpected '}', expected a key");
  check("{\"a\" 1}", "1:6: a: not JSON: unexpected '1', expected ':'");
  check("{x", "1:2: not JSON: unexpected 'x', expected a key or '}'");
  check("{} x", "1:4: not JSON: unexpected 'x', expected the end");
  check("[1 2]", "1:4: [1]: not JSON: unexpected '2', expected ',' or ']'");
  check("[1,]", "1:4: [1]: not JSON: unexpected ']', expected a value");
  check("{\"a\": [1, {\"b\": }]}", "1:17: a[1].b: not JSON: unexpected '}', expected a value");
  check("{\"a\": [", "1:7: a[0]: not JSON: it ends here, expected a value or ']'");
  check("[\"abc", "1:5: [0]: not JSON: a string without its closing quote");
  check("[-x]", "1:3: [0]: not JSON: '-x' is not a number");
  check("[\"\\q\"]", "1:4: [0]: not JSON: an unknown escape");
  check("[\"\\ud800\"]", "1:9: [0]: not JSON: half of a surrogate pair");
  check("[\"a\tb\"]", "1:4: [0]: not JSON: a control byte; write it as \\u0009");
}

TEST_CASE("bytes that are no text are told as what they are") {
  CHECK(error_of("[\"\xff\"]") == "f.json:1:3: [0]: not JSON: bytes that are not UTF-8");
  CHECK(error_of("\xff\xfe{") == "f.json:1:1: not JSON: the text is UTF-16, expected UTF-8");
  CHECK(error_of(std::string("{}\0{}", 5)) == "f.json:1:3: not JSON: a NUL byte");
  CHECK(error_of("\x1b[31m") == "f.json:1:1: not JSON: unexpected '\\u001b', expected a value");
}

TEST_CASE("a number that no double holds is told with its key") {
  CHECK(error_of("{\"a\": [1e9990]}") == "f.json:1:13: a[0]: the number 1e9990 is out of range");
  CHECK(error_of("-" + std::string(400, '9')).size() < 200);
  CHECK(parse_json("1e-9990", kSource) == 0.0);
}

TEST_CASE("JSON that is nested too deeply is refused before it is a tree") {
  CHECK_NOTHROW(parse_json(std::string(128, '[') + std::string(128, ']'), kSource));
  CHECK(error_of(std::string(129, '[') + std::string(129, ']')) ==
        "f.json:1:129: nested deeper than 128 levels");
  CHECK(error_of(repeat("{\"a\":", 1'000'000)).find("nested deeper") != std::string::npos);
  CHECK_NOTHROW(parse_json("[\"" + std::string(1000, '[') + "\"]", kSource));
}

TEST_CASE("more bytes or values than a limit are refused with both numbers") {
  JsonSource small = kSource;
  small.limits = {.bytes = 20, .values = 4};
  CHECK_NOTHROW(parse_json("[1, 2, 3]", small));
  CHECK(error_of("[1, 2, 3, 4]", small) == "f.json:1:9: more than 4 values in one JSON text");
  CHECK(error_of(std::string(21, ' '), small) == "f.json has 21 bytes of JSON; the limit is 20");
}

TEST_CASE("line numbers go on where a text is a part of its file") {
  JsonSource later = kSource;
  later.line = 17;
  CHECK(error_of("{x}", later).starts_with("f.json:17:2: "));
}

TEST_CASE("60,000 keys and 3,000 long ones are read in linear time, ordered or not") {
  std::string many = "{\"first\": 0", longs = many;
  for (int i = 0; i < 60'000; ++i) many += fmt::format(", \"key{}\": {}", i, i);
  for (int i = 0; i < 3'000; ++i) longs += fmt::format(", \"{}{}\": 0", std::string(3'000, 'k'), i);
  for (const std::string& text : {many + "}", longs + "}"}) {
    DuplicateKeys duplicate_keys;
    CHECK(seconds_of([&] { parse_json(text, kSource); }) < 2);
    CHECK(seconds_of([&] { parse_ordered_json(text, kSource, &duplicate_keys); }) < 2);
    CHECK(duplicate_keys.count == 0);
  }
}

TEST_CASE("a file is read whole, and refused by what it is") {
  const TempFolder directory;
  const std::string path = (directory.path() / "a.json").string();
  write_text(path, "{\"a\": 1}");
  CHECK(read_json({.name = path})["a"] == 1);
  CHECK_THROWS_WITH_AS(read_json({.name = path, .limits = {.bytes = 7}}),
                       (path + " has 8 bytes; the limit is 7").c_str(), Error);
  CHECK_THROWS_WITH_AS(read_json({.name = "/dev/zero"}), "/dev/zero is a device, expected a file",
                       Error);
}

TEST_CASE("integers beyond 64 bits are refused where they must be exact") {
  const std::string large = R"({"a": [18446744073709551615, 1e22, 18446744073709551616]})";
  CHECK(parse_json(large, kSource)["a"][2] == 0x1p64);
  const JsonSource exact = {.name = "f.json", .line = 3, .exact_integers = true};
  CHECK_THROWS_WITH_AS(
      parse_json(large, exact),
      "f.json:3: a[2]: 18446744073709551616 does not fit 64 bits: write it as a string", Error);
  CHECK_THROWS_AS(parse_ordered_json("-9223372036854775809", exact), Error);
  CHECK(parse_json("[-9223372036854775808, 1e22]", exact)[1] == 1e22);
}

TEST_CASE("a quotation is printable, short, and made in no more time than that takes") {
  CHECK(quoted(parse_json(R"({"a": [1, "x\u007f", null]})", kSource)) ==
        R"({"a":[1,"x\u007f",null]})");
  const auto large = parse_json("[" + repeat("[\"\\u00e4\\u00e4\"],", 200'000) + "0]", kSource);
  CHECK(seconds_of([&] {
          for (int i = 0; i < 1000; ++i) CHECK(quoted(large, 20).size() <= 23);
        }) < 2);
  CHECK(quoted(large, 20).ends_with("..."));
  CHECK(quoted(nlohmann::json(std::string(100'000, 'a'))).size() <= 83);
  CHECK(quoted(nlohmann::json(std::nan(""))) == "null");
}

TEST_CASE("a text of our own that is no JSON is a bug of ours") {
  CHECK(parse_trusted_json(R"({"b": 1, "a": "x"})").dump() == R"({"b":1,"a":"x"})");
  CHECK_THROWS_AS(parse_trusted_json("{"), InternalError);
}

}  // namespace zeroth::json_test
