#include "configs/schema/key_value.h"

#include <cmath>

#include "tests/configs/support.h"

namespace zeroth::configs::key_value_test {
namespace {

using Json = nlohmann::ordered_json;

ConfigKey key_of(KeyType type, std::string_view accepts = "", bool any_case = false) {
  return {.path = "k",
          .field = {type},
          .default_value = "null",
          .accepts = accepts,
          .any_case = any_case};
}

}  // namespace

TEST_CASE("integers may be integral floats, numbers may be integers, nothing else changes type") {
  CHECK(typed_value(Json(5e8), key_of(KeyType::kInteger)) == Json(500'000'000));
  CHECK_FALSE(typed_value(Json(0.5), key_of(KeyType::kInteger)).has_value());
  CHECK_FALSE(typed_value(Json(NAN), key_of(KeyType::kInteger)).has_value());
  CHECK_FALSE(typed_value(Json(1e19), key_of(KeyType::kInteger)).has_value());
  CHECK(typed_value(Json(2), key_of(KeyType::kNumber))->is_number_float());
  CHECK_FALSE(typed_value(Json(true), key_of(KeyType::kNumber)).has_value());
  CHECK_FALSE(typed_value(Json("1"), key_of(KeyType::kNumber)).has_value());
  CHECK_FALSE(typed_value(Json(1), key_of(KeyType::kBool)).has_value());
}

TEST_CASE("a list of integers has nothing else in it, each in the range") {
  const ConfigKey key = key_of(KeyType::kIntegers, "1..8");
  CHECK(typed_value(Json{1, 8}, key) == Json{1, 8});
  CHECK(is_accepted(Json{1, 8}, key));
  CHECK_FALSE(is_accepted(Json{1, 9}, key));
  for (const Json& value : {Json(1), Json{1, 2.5}, Json{1, "2"}, Json{1, nullptr}})
    CHECK_FALSE(typed_value(value, key).has_value());
}

TEST_CASE("a single integer may stand for a list, and a string for names") {
  CHECK(typed_value(Json(3), key_of(KeyType::kIntegerOrList)) == Json::array({3}));
  CHECK(typed_value(Json{1, 2}, key_of(KeyType::kIntegerOrList)) == Json{1, 2});
  CHECK_FALSE(is_accepted(Json{-1}, key_of(KeyType::kIntegerOrList, ">= 0")));
  for (const Json& value : {Json(1.5), Json("1"), Json{1, "2"}})
    CHECK_FALSE(typed_value(value, key_of(KeyType::kIntegerOrList)).has_value());
  CHECK(typed_value(Json("x"), key_of(KeyType::kNames)) == "x");
  CHECK(typed_value(Json{"x", "y"}, key_of(KeyType::kNames)) == Json{"x", "y"});
  for (const Json& value : {Json(1), Json{"x", 1}, Json(nullptr), Json(std::string(1, '\0'))})
    CHECK_FALSE(typed_value(value, key_of(KeyType::kNames)).has_value());
}

TEST_CASE("a choice may have values of several types") {
  const ConfigKey key = key_of(KeyType::kChoice, "true | \"x\"");
  for (const Json& value : {Json(true), Json("x")}) CHECK(is_accepted(value, key));
  for (const Json& value : {Json(false), Json("y"), Json(1)}) CHECK_FALSE(is_accepted(value, key));
  CHECK(describe_accepted(key) == "true | \"x\"");
}

TEST_CASE("an integer is infinite only where its range says so") {
  CHECK(typed_value(Json(INFINITY), key_of(KeyType::kInteger, ">= 0 or Infinity")) ==
        Json(kInfinity));
  CHECK_FALSE(typed_value(Json(INFINITY), key_of(KeyType::kInteger, ">= 0")).has_value());
  CHECK(is_accepted(Json(kInfinity), key_of(KeyType::kInteger, ">= 0 or Infinity")));
}

TEST_CASE("letters of another case become the table's, where that does not matter") {
  CHECK(typed_value(Json("SuM"), key_of(KeyType::kString, "\"mean\" | \"sum\"", true)) == "sum");
  CHECK(typed_value(Json("SuM"), key_of(KeyType::kString, "\"mean\" | \"sum\"")) == "SuM");
  CHECK_FALSE(is_accepted(Json("SuM"), key_of(KeyType::kString, "\"mean\" | \"sum\"")));
}

TEST_CASE("messages show values as they stand in the file") {
  CHECK(describe(Json("x")) == "the string \"x\"");
  CHECK(describe(Json(8.5)) == "8.5");
  CHECK(describe(Json(INFINITY)) == "inf");
  CHECK(describe(Json::object()) == "an object");
  CHECK(describe_accepted(key_of(KeyType::kInteger, "> 0")) == "an integer > 0");
  CHECK(describe_accepted(key_of(KeyType::kNumber, "[0, 1)")) == "a number in [0, 1)");
}

}  // namespace zeroth::configs::key_value_test
