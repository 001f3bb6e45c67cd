#include "model/hf/config_reader.h"

#include <doctest/doctest.h>

namespace zeroth::model::config_reader_test {

using nlohmann::json;
using Texts = std::vector<std::string>;

TEST_CASE("values are read by type, with a fallback for absent and null keys") {
  const json object = {{"n", 3},     {"whole", 5e3}, {"x", 0.5},
                       {"on", true}, {"name", "a"},  {"none", nullptr}};
  ConfigReader reader(object);
  CHECK(reader.size("n") == 3);
  CHECK(reader.size("whole") == 5000);
  CHECK(reader.size("none", 7) == 7);
  CHECK(reader.number("x") == 0.5);
  CHECK(reader.flag("on", false));
  CHECK(reader.flag("absent", true));
  CHECK(reader.text("name") == "a");
  CHECK(reader.text("absent", "b") == "b");
  CHECK(reader.has("none"));
  CHECK(reader.find("none") == nullptr);
  CHECK(reader.errors().empty());
}

TEST_CASE("complaints name key, value and what was expected, and none hides another") {
  const json object = {{"n", 2.5}, {"x", "1"}, {"zero", 0}, {"on", 1}, {"name", 2}};
  ConfigReader reader(object, "part.");
  reader.size("n");
  reader.size("absent");
  reader.number("x");
  reader.positive("zero");
  reader.flag("on", true);
  reader.text("name");
  CHECK(reader.errors() ==
        Texts{"part.n is 2.5, expected a whole number of at least 1", "part.absent is missing",
              "part.x is \"1\", expected a number", "part.zero is 0, expected more than 0",
              "part.on is 1, expected true or false", "part.name is 2, expected a string"});
}

TEST_CASE("what is off is not refused") {
  const json object = {{"a", false},          {"b", 0.0}, {"c", nullptr},
                       {"d", json::object()}, {"e", 0.1}, {"f", "on"}};
  ConfigReader reader(object);
  for (const char* key : {"a", "b", "c", "d", "absent"}) reader.reject(key);
  CHECK(reader.errors().empty());
  reader.reject("e");
  reader.reject("f");
  CHECK(reader.errors() ==
        Texts{"e is 0.1, which is not supported", "f is \"on\", which is not supported"});
}

TEST_CASE("a required value is compared as a number") {
  const json object = {{"a", 1}, {"b", 2}};
  ConfigReader reader(object);
  reader.require("a", 1.0);
  reader.require("absent", 1.0);
  CHECK(reader.errors().empty());
  reader.require("b", 1.0);
  CHECK(reader.errors() == Texts{"b is 2; only 1.0 is supported"});
}

TEST_CASE("keys that nobody named and that are not harmless are unknown") {
  const json object = {{"read", 1}, {"harmless", 1}, {"other", 1}};
  const json inner = {{"odd", 1}};
  ConfigReader reader(object);
  reader.size("read");
  ConfigReader part(inner, "part.");
  part.collect_unknown_keys({});
  reader.add(part);
  reader.collect_unknown_keys({"harmless"});
  CHECK(reader.unknown_keys() == Texts{"part.odd", "other"});
}

TEST_CASE("a size beyond what is computed with is a complaint with both numbers") {
  const json object = {{"layers", 1e7}, {"rows", 1e300}, {"text", std::string(5000, 'x')}};
  ConfigReader reader(object);
  CHECK(reader.size("layers", {}, 4096) == 1);
  CHECK(reader.size("rows") == 1);
  reader.size("text");
  REQUIRE(reader.errors().size() == 3);
  CHECK(reader.errors()[0] == "layers is 10000000.0, expected at most 4096");
  CHECK(reader.errors()[1] == "rows is 1e+300, expected at most 2147483648");
  CHECK(reader.errors()[2].size() < 120);
}

}  // namespace zeroth::model::config_reader_test
