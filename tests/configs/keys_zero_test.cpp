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

}  // namespace zeroth::configs
