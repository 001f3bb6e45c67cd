#include "tests/configs/support.h"

namespace zeroth::configs {

TEST_CASE(
    "gradients are by default averaged after the sum, in the working precision, kept in fp32") {
  const GradientConfig gradients = config_of(R"({"bf16": {"enabled": true}})").gradients;
  CHECK(gradients.reduce == GradientConfig::Reduce::kMean);
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
  CHECK(gradients.reduce == GradientConfig::Reduce::kSum);
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
        "test.json: data_types.grad_accum_dtype: fp16 beside a run in bf16: expected fp32 or bf16");
  CHECK(error_of(R"({"data_types": {"grad_accum_dtype": "bf16"}})") ==
        "test.json: data_types.grad_accum_dtype: bf16 beside a run in fp32: expected fp32");
  CHECK(error_of(R"({"fp16": {"enabled": true}, "data_types": {"param_dtype": "bf16"}})") ==
        "test.json: data_types.param_dtype: bf16, but the run computes in fp16: leave it out or "
        "make them equal");
  CHECK(error_of(R"({"data_types": {"buffer_dtype": "bf16"}})")
            .find("data_types.buffer_dtype: \"bf16\" is refused") != std::string::npos);
}

}  // namespace zeroth::configs
