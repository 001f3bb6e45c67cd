#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_other_test {

TEST_CASE("the other keys are idle or refused as the table says") {
  for (const ConfigKey& key : other_rows()) check_row(key);
}

TEST_CASE("a section that is off may say what it likes, under names that exist") {
  CHECK(complaints_of(R"({"wandb": {"enabled": false, "project": "x"}})").empty());
  CHECK(complaints_of(R"({"data_efficiency": {"data_sampling": {"anything": {"x": 1}}}})").empty());
  CHECK(complaints_of(R"({"curriculum_learning": {"enabled": false, "whatever": 1}})").empty());
  CHECK(complaints_of(R"({"wandb": {"projekt": "x"}})") ==
        "wandb.projekt: unknown key; did you mean project?");
  CHECK(complaints_of(R"({"hybrid_engine": {"pin_parameter": true}})") ==
        "hybrid_engine.pin_parameter: unknown key; did you mean pin_parameters?");
}

TEST_CASE("a tag validation that does not exist is refused, in any case of letters") {
  for (const char* mode : {"Ignore", "Warn", "Fail", "WARN", "fail"}) {
    CHECK(complaints_of(nested("checkpoint.tag_validation", fmt::format("\"{}\"", mode))) == "");
  }
  CHECK(complaints_of(nested("checkpoint.tag_validation", "\"maybe\"")) ==
        "checkpoint.tag_validation: expected \"Ignore\" | \"Warn\" | \"Fail\", found the string "
        "\"maybe\"");
}

}  // namespace zeroth::configs::keys_other_test
