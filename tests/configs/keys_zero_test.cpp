#include "configs/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs {

TEST_CASE("zero_optimization keys are honoured, idle or refused as the table says") {
  for (const Key& key : zero_rows()) check_row(key);
}

TEST_CASE("offload is accepted when it is off, and refused when it is on") {
  CHECK(error_of(R"({"zero_optimization": {"offload_optimizer": {"device": "none",
                     "pin_memory": true}, "offload_param": null}})") == "");
  CHECK(error_of(R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})") ==
        "test.json: zero_optimization.offload_optimizer: refused: not supported yet: optimizer "
        "state rests on the device; leave the section out or set device to \"none\"");
}

TEST_CASE("whatever offload a file asks for is refused by its key, also where it would be wrong") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"offload_optimizer",
       R"({"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})"},
      {"offload_optimizer", R"({"stage": 3, "offload_optimizer": {"device": "nvme"}})"},
      {"offload_optimizer",
       R"({"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}})"},
      {"offload_param", R"({"stage": 2, "offload_param": {"device": "cpu"}})"},
  };
  for (const auto& [key, section] : cases) {
    CHECK(complaints_of(nested("zero_optimization", section))
              .starts_with(fmt::format("zero_optimization.{}: refused: not supported yet", key)));
  }
}

}  // namespace zeroth::configs
