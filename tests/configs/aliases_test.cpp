#include "configs/schema/check.h"
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
  const Resolved old = resolve_text(section(R"("cpu_offload": true)"));
  CHECK(old.config.zero.offload_optimizer.device == RestingPlace::kCpu);
  CHECK(old.config.zero.offload_param.device == RestingPlace::kDevice);
  CHECK(warnings_of(old) ==
        std::vector<std::string>{"zero_optimization.cpu_offload true is the old form of "
                                 "zero_optimization.offload_optimizer {\"device\":\"cpu\"}"});
  for (const char* name : {"cpu_offload_param", "cpu_offload_params"}) {
    const Resolved param = resolve_text(section(fmt::format("\"{}\": true", name).c_str()));
    CHECK(param.config.zero.offload_param.device == RestingPlace::kCpu);
    CHECK(param.config.zero.offload_optimizer.device == RestingPlace::kDevice);
    CHECK(warnings_of(param).size() == 1);
  }
  for (const char* off : {"false", "null"}) {
    CHECK(complaints_of(section(fmt::format("\"cpu_offload\": {}", off).c_str())) == "");
  }
  CHECK(complaints_of(section(R"("cpu_offload": true, "offload_optimizer": {"device": "none"})"))
            .find("zero_optimization.offload_optimizer: stands in the file also as "
                  "zero_optimization.cpu_offload: keep one") != std::string::npos);
  CHECK(complaints_of(section(R"("cpu_offload": "yes")")) ==
        "zero_optimization.cpu_offload: expected true or false, found the string \"yes\"");
}

TEST_CASE("the threads of aio have an old name") {
  const Resolved old = resolve_text(nested("aio.thread_count", "3"));
  CHECK(old.config.aio.threads == 3);
  CHECK(has_warning(old, "aio.thread_count is the old name of aio.intra_op_parallelism"));
  CHECK(complaints_of(R"({"aio": {"thread_count": 3, "intra_op_parallelism": 3}})") ==
        "aio.intra_op_parallelism: stands in the file also as aio.thread_count: keep one");
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
