#include "tests/configs/support.h"

namespace zeroth::configs::precision_test {
namespace {

FlagValues with(Precision precision) {
  FlagValues flags;
  flags.precision = precision;
  return flags;
}

}  // namespace

TEST_CASE("no precision section is fp32, said in one line") {
  const Resolved resolved = resolve_text("{}");
  CHECK(resolved.config.precision == Precision::kFp32);
  CHECK(has_note(resolved, "no precision section: fp32"));
  CHECK_FALSE(has_note(resolve_text("{}", with(Precision::kFp32)), "fp32"));
  CHECK(has_note(resolve_text(R"({"bf16": {"enabled": "auto"}})"), "neither fp16 nor bf16"));
}

TEST_CASE("the sections and the flags choose the precision") {
  CHECK(config_of(R"({"fp16": {"enabled": true}})").precision == Precision::kFp16);
  CHECK(config_of(R"({"bf16": {"enabled": true}})").precision == Precision::kBf16);
  CHECK(config_of("{}", with(Precision::kBf16)).precision == Precision::kBf16);
  const char* both_auto = R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})";
  CHECK(config_of(both_auto, with(Precision::kFp16)).precision == Precision::kFp16);
  CHECK(config_of(both_auto).precision == Precision::kFp32);
  CHECK(config_of(R"({"bf16": {"enabled": true}})", with(Precision::kBf16)).precision ==
        Precision::kBf16);
}

TEST_CASE("a precision flag against the file is an error") {
  CHECK(error_of(R"({"fp16": {"enabled": true}})", with(Precision::kBf16)) ==
        "test.json: fp16.enabled: true in the file, but --bf16; make them equal or write \"auto\" "
        "in the file");
  CHECK(error_of(R"({"fp16": {"enabled": false}})", with(Precision::kFp16))
            .find("fp16.enabled: false in the file, but --fp16") != std::string::npos);
  CHECK(error_of(R"({"bf16": {"enabled": true}})", with(Precision::kFp32)) != "");
  CHECK(error_of(R"({"fp16": {"enabled": false}})", with(Precision::kBf16)) == "");
}

TEST_CASE("the loss scale's values are read") {
  const LossScaleConfig scale = config_of(R"({"fp16": {"enabled": true, "loss_scale": 0,
      "initial_scale_power": 8, "loss_scale_window": 20, "hysteresis": 3,
      "consecutive_hysteresis": true, "min_loss_scale": 4}})")
                                    .loss_scale;
  CHECK(scale.static_scale == 0);
  CHECK(scale.initial_scale_power == 8);
  CHECK(scale.window == 20);
  CHECK(scale.hysteresis == 3);
  CHECK(scale.consecutive_hysteresis);
  CHECK(scale.min_scale == 4);
  CHECK(config_of(R"({"fp16": {"enabled": true, "loss_scale": 1024}})").loss_scale.static_scale ==
        1024);
}

TEST_CASE("bf16 looks for gradients that are not finite unless told not to") {
  CHECK(config_of(R"({"bf16": {"enabled": true}})").check_grad_overflow);
  CHECK_FALSE(config_of(R"({"bf16": {"enabled": true, "check_grad_overflow": false}})")
                  .check_grad_overflow);
}

TEST_CASE("a loss scale that is no finite number from zero up is refused with its key") {
  for (const char* value : {"true", "\"NaN\"", "\"inf\"", "-1", "\"128\"", "null", "1e999", "NaN",
                            "Infinity", "-Infinity"}) {
    CAPTURE(value);
    const auto message = [&]() -> std::string {
      try {
        return error_of(fmt::format(R"({{"fp16": {{"loss_scale": {}}}}})", value));
      } catch (const Error& error) {
        return error.what();
      }
    }();
    CHECK(message.find("fp16.loss_scale: ") != std::string::npos);
  }
}

TEST_CASE(
    "gradients are by default averaged after the sum, in the working precision, kept in fp32") {
  const GradientConfig gradients = config_of(R"({"bf16": {"enabled": true}})").gradients;
  CHECK(gradients.reduce == GradientConfig::Reduction::kMean);
  CHECK_FALSE(gradients.prescale);
  CHECK(gradients.predivide_factor == 1.0);
  CHECK_FALSE(gradients.communication.has_value());
  CHECK(gradients.accumulation == Precision::kFp32);
}

TEST_CASE("the gradient keys are read, in any case as DeepSpeed does") {
  const GradientConfig gradients = config_of(R"({"prescale_gradients": true,
      "gradient_predivide_factor": 2, "gradient_allreduce_op": "SUM",
      "communication_data_type": "BF16", "fp16": {"enabled": true},
      "data_types": {"grad_accum_dtype": "float16", "param_dtype": "fp16"}})")
                                       .gradients;
  CHECK(gradients.prescale);
  CHECK(gradients.predivide_factor == 2);
  CHECK(gradients.reduce == GradientConfig::Reduction::kSum);
  CHECK(gradients.communication == Precision::kBf16);
  CHECK(gradients.accumulation == Precision::kFp16);
}

TEST_CASE("a reduction or a type that does not exist is refused with what does") {
  CHECK(error_of(R"({"gradient_allreduce_op": "max"})") ==
        "test.json: gradient_allreduce_op: expected \"mean\" | \"sum\", found the string \"max\"");
  CHECK(error_of(R"({"communication_data_type": "int8"})") ==
        "test.json: communication_data_type: expected \"fp32\" | \"fp16\" | \"bf16\", found the "
        "string \"int8\"");
  CHECK(error_of(R"({"gradient_predivide_factor": 0})") ==
        "test.json: gradient_predivide_factor: expected a number > 0, found 0");
}

TEST_CASE("types that contradict the precision of the run are refused") {
  CHECK(error_of(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"}})") ==
        "test.json: data_types.grad_accum_dtype: fp16 in a run in bf16: expected fp32 or bf16");
  CHECK(error_of(R"({"data_types": {"grad_accum_dtype": "bf16"}})") ==
        "test.json: data_types.grad_accum_dtype: bf16 in a run in fp32: expected fp32");
  CHECK(error_of(R"({"fp16": {"enabled": true}, "data_types": {"param_dtype": "bf16"}})") ==
        "test.json: data_types.param_dtype: bf16, but the run computes in fp16: leave it out or "
        "make them equal");
  CHECK(error_of(R"({"data_types": {"buffer_dtype": "bf16"}})")
            .find("data_types.buffer_dtype: \"bf16\" is refused") != std::string::npos);
}

}  // namespace zeroth::configs::precision_test
