#include "base/json/json.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace zeroth::json_flat_test {
namespace {

std::string flat(const char* text, const std::string& path = "") {
  std::vector<std::string> lines;
  for (const FlatValue& value : flat_values(parse_trusted_json(text), path)) {
    lines.push_back(value.path + "=" + value.text);
  }
  return fmt::format("{}", fmt::join(lines, " "));
}

}  // namespace

TEST_CASE("values stand by their paths, in the order of the tree; texts without marks") {
  CHECK(flat(R"({"b": {"d": 1, "c": {"x": "text"}}, "a": [1, {"y": null}], "e": {}, "f": true})") ==
        R"(b.d=1 b.c.x=text a=[1,{"y":null}] f=true)");
  CHECK(flat(R"({"a": 0.1, "b": {"c": "x"}})", "model") == "model.a=0.1 model.b.c=x");
  CHECK(flat("{}").empty());
}

TEST_CASE("a byte that is not UTF-8 ends nothing") {
  const nlohmann::ordered_json json = {{"a", {"\xff"}}};
  CHECK(flat_values(json).at(0).text == "[\"\xef\xbf\xbd\"]");
}

}  // namespace zeroth::json_flat_test
