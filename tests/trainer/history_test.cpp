#include "trainer/report/history.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::trainer::history_test {
namespace {

std::string complaint_about(const std::string& text) {
  return message_of<Error>([&] { parse_history(text); });
}

}  // namespace

TEST_CASE("a history comes back as it was, numbers that JSON lacks too") {
  const History history{.step = 12,
                        .seconds = 0.1,
                        .loss = -std::numeric_limits<double>::infinity(),
                        .run_name = "Nov23_13-36-30_node7",
                        .record = {{"steps", 12}},
                        .page = {1, 2.5, nullptr}};
  const History again = parse_history(to_text(history));
  CHECK(again.step == 12);
  CHECK(again.seconds == 0.1);
  CHECK(again.loss == history.loss);
  CHECK(again.run_name == history.run_name);
  CHECK(again.record == history.record);
  CHECK(again.page == history.page);
  const History empty = parse_history(to_text({}));
  CHECK_FALSE(empty.loss);
  CHECK(empty.record.is_null());
  CHECK(std::isnan(*parse_history(to_text({.loss = NAN})).loss));
}

TEST_CASE("a text that is no history is refused by the file's name") {
  CHECK(complaint_about("") == "zeroth/history.json:1:1: not JSON: it ends here, expected a value");
  CHECK(complaint_about("{\"step\": 1,\n").starts_with("zeroth/history.json:"));
  CHECK(complaint_about("[]") == "zeroth/history.json is [], expected an object");
  CHECK(complaint_about("{}") == "zeroth/history.json.version is missing");
  const nlohmann::json good = {{"version", 1},  {"step", 3},         {"seconds", 1.5},
                               {"loss", 2.5},   {"record", nullptr}, {"page", nullptr},
                               {"run_name", ""}};
  const auto complaint_with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json history = good;
    history[key] = value;
    return complaint_about(history.dump());
  };
  CHECK(complaint_with("step", 3) == "no exception");
  CHECK(complaint_with("version", 2) ==
        "zeroth/history.json: version is 2, expected an integer in 1..1");
  CHECK(complaint_with("step", -1).starts_with("zeroth/history.json: step is -1, expected an "));
  CHECK(complaint_with("seconds", "nan") ==
        "zeroth/history.json: seconds is \"nan\", expected a time in seconds");
  CHECK(complaint_with("loss", "\x1b[2J") ==
        "zeroth/history.json: loss is \"\\u001b[2J\", expected a number, inf or nan");
  for (const std::string& name :
       {std::string(".."), std::string("../../etc"), std::string("/etc"), std::string("a\0b", 3)}) {
    CHECK(complaint_with("run_name", name).ends_with("expected the name of a folder"));
  }
  CHECK(complaint_about(std::string(200, '[')).starts_with("zeroth/history.json:1:"));
}

}  // namespace zeroth::trainer::history_test
