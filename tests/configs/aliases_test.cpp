#include "configs/check.h"
#include "tests/configs/support.h"

namespace zeroth::configs {

TEST_CASE("every other spelling reaches its key, and an old one is said") {
  for (const Alias& alias : aliases()) {
    if (alias.kind == Alias::Kind::kCpuDevice) continue;
    CAPTURE(alias.other);
    const Key* key = find_key(alias.path);
    REQUIRE(key != nullptr);
    const std::string value = key->type == KeyType::kSection ? "{}" : std::string(key->fallback);
    const std::string text = nested(std::string(alias.other), value);
    CHECK(complaints_of(text) == "");
    const bool old = alias.kind == Alias::Kind::kOldName;
    CHECK(has_warning(resolve_text(text),
                      fmt::format("{} is the old name of {}", alias.other, alias.path)) == old);
  }
}

TEST_CASE("cpu_offload means offload_optimizer on the CPU, with a warning, and not both") {
  const auto section = [](const char* inside) {
    return fmt::format(R"({{"zero_optimization": {{"stage": 3, {}}}}})", inside);
  };
  const Document old = parse_text(section(R"("cpu_offload": true)"), "x");
  REQUIRE(old.complaints().size() == 1);  // offload itself is not there yet
  CHECK(old.complaints()[0].starts_with("zero_optimization.offload_optimizer: refused"));
  CHECK(old.keys().warnings ==
        std::vector<std::string>{"zero_optimization.cpu_offload true is the old form of "
                                 "zero_optimization.offload_optimizer {\"device\":\"cpu\"}"});
  CHECK(complaints_of(section(R"("cpu_offload_param": true)"))
            .starts_with("zero_optimization.offload_param: refused"));
  for (const char* off : {"false", "null"}) {
    CHECK(complaints_of(section(fmt::format("\"cpu_offload\": {}", off).c_str())) == "");
  }
  CHECK(complaints_of(section(R"("cpu_offload": true, "offload_optimizer": {"device": "none"})"))
            .find("zero_optimization.offload_optimizer: stands in the file also as "
                  "zero_optimization.cpu_offload: keep one") != std::string::npos);
  CHECK(complaints_of(section(R"("cpu_offload": "yes")")) ==
        "zero_optimization.cpu_offload: expected true or false, found the string \"yes\"");
}

TEST_CASE("prefixed and plain names of stage 3 are the same keys") {
  for (const char* prefix : {"", "stage3_"}) {
    const ZeroConfig zero = config_of(fmt::format(R"({{"zero_optimization": {{"stage": 3,
            "{0}prefetch_bucket_size": 7, "{0}param_persistence_threshold": 8,
            "{0}max_live_parameters": 9, "{0}gather_16bit_weights_on_model_save": true}}}})",
                                                  prefix))
                                .zero;
    CHECK(zero.prefetch_bucket_elements == 7);
    CHECK(zero.param_persistence_threshold_elements == 8);
    CHECK(zero.max_live_elements == 9);
    CHECK(zero.gather_16bit_weights_on_model_save);
  }
}

}  // namespace zeroth::configs
