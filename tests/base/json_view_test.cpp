#include "base/json/json_view.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::json_view_test {
namespace {

const nlohmann::json kTree = nlohmann::json::parse(
    R"({"model": {"type": "BPE", "ids": [1, -2, 1e300, 18446744073709551615, "x"], "off": null},
        "on": true})");

template <typename Read>
std::string error_of(const Read& read) {
  try {
    read(JsonView(kTree));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a view reads values of their kind") {
  const JsonView view(kTree);
  CHECK(view.at("model").at("type").text() == "BPE");
  CHECK(view.at("model").at("ids").at(1).integer(-5, 5) == -2);
  CHECK(view.at("model").at("ids").size() == 5);
  CHECK(view.at("on").flag());
  CHECK(view.at("model").text("type", "none") == "BPE");
}

TEST_CASE("what is absent or null takes the value that stands for it") {
  const JsonView view(kTree);
  CHECK_FALSE(view.find("nothing").has_value());
  CHECK_FALSE(view.at("model").find("off").has_value());
  CHECK_FALSE(view.at("model").at("off").find("x").has_value());
  CHECK(view.text("nothing", "none") == "none");
  CHECK(view.at("model").flag("off", true));
}

TEST_CASE("a value of another kind is told with its path, itself and what was expected") {
  CHECK(error_of([](const JsonView& v) { v.at("model").at("type").flag(); }) ==
        "model.type is \"BPE\", expected true or false");
  CHECK(error_of([](const JsonView& v) { v.at("on").at("x"); }) ==
        "on is true, expected an object");
  CHECK(error_of([](const JsonView& v) { v.at("on").at(0); }) == "on is true, expected a list");
  CHECK(error_of([](const JsonView& v) { v.at("none"); }) == "none is missing");
  CHECK(error_of([](const JsonView& v) { v.at("model").at("ids").at(5); }) ==
        "model.ids[5] is missing");
  CHECK(error_of([](const JsonView& v) { v.integer(0, 1); }).starts_with("the file is {"));
}

TEST_CASE("an integer is one, and within its bounds") {
  const auto refused = [](size_t index) {
    return error_of([=](const JsonView& v) { v.at("model").at("ids").at(index).integer(0, 9); });
  };
  CHECK(refused(0).empty());
  CHECK(refused(1) == "model.ids[1] is -2, expected an integer in 0..9");
  CHECK(refused(2) == "model.ids[2] is 1e+300, expected an integer in 0..9");
  CHECK(refused(3) == "model.ids[3] is 18446744073709551615, expected an integer in 0..9");
  CHECK(refused(4) == "model.ids[4] is \"x\", expected an integer in 0..9");
}

TEST_CASE("a list of strings is read at once") {
  const nlohmann::json tree = {{"names", {"a", "b"}}, {"mixed", {"a", 1}}};
  CHECK(JsonView(tree).at("names").texts() == std::vector<std::string>{"a", "b"});
  CHECK(message_of<Error>([&] { (void)JsonView(tree).at("mixed").texts(); }) ==
        "mixed[1] is 1, expected a string");
}

}  // namespace zeroth::json_view_test
