#include "tests/configs/support.h"

namespace zeroth::configs::typed_section_test {

TEST_CASE("of a section with an unknown type nothing else is said") {
  CHECK(error_of(R"({"optimizer": {"type": "Adma", "params": {"lr": -1, "max_grad_norm": -1}}})") ==
        "test.json: optimizer.type: unknown type \"Adma\"; did you mean Adam?");
  CHECK(error_of(R"({"scheduler": {"type": "Cyclic", "params": {"warmup_type": "none"}}})")
            .starts_with("test.json: scheduler.type: unknown type \"Cyclic\"; one of WarmupLR, "));
}

TEST_CASE("a value of another type's is refused where it stands, also under keys without effect") {
  CHECK(error_of(R"({"optimizer": {"type": "SGD", "params": {"torch_adam": true}}})")
            .starts_with("test.json: optimizer.params.torch_adam: not supported by SGD; supported: "
                         "lr, momentum, "));
  CHECK(
      error_of(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0,
                     "cycle_max_lr": 1, "warmup_num_steps": 5}}})")
          .starts_with("test.json: scheduler.params.warmup_num_steps: not supported by OneCycle"));
}

TEST_CASE("what is refused for every type is said once") {
  CHECK(error_of(R"({"optimizer": {"type": "SGD", "params": {"amsgrad": true}}})") ==
        "test.json: optimizer.params.amsgrad: true is refused: not supported, as in DeepSpeed; "
        "accepted: false");
}

}  // namespace zeroth::configs::typed_section_test
