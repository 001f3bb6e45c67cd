#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/spec.h"
#include "tests/model/materialize.h"

namespace zeroth::model::spec_quantization_test {
namespace {

using nlohmann::json;

json nf4() {
  return {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
}

std::string config_text(const json& quantization) {
  return json({{"model_type", "llama"},
               {"vocab_size", 64},
               {"hidden_size", 32},
               {"num_hidden_layers", 3},
               {"num_attention_heads", 4},
               {"intermediate_size", 48},
               {"dtype", "bfloat16"},
               {"quantization_config", quantization}})
      .dump();
}

std::optional<QuantizationSpec> read(const json& quantization) {
  return parse_model_spec(config_text(quantization), "config.json").quantization;
}

}  // namespace

TEST_CASE("a config of bitsandbytes with NF4 says how the files hold weights") {
  CHECK_FALSE(read(nullptr));
  CHECK_FALSE(read(json::object()));
  CHECK(read(nf4()) == QuantizationSpec{.is_stored = true, .dtype = "bfloat16"});
  json more = nf4();
  more["bnb_4bit_use_double_quant"] = true;
  more["bnb_4bit_quant_storage"] = "bfloat16";
  more["llm_int8_skip_modules"] = {"lm_head"};
  CHECK(read(more) ==
        QuantizationSpec{.double_quant = true, .is_stored = true, .dtype = "bfloat16"});
  const ModelSpec spec = read_model_spec(fixture("llama_nf4"));
  CHECK(spec.unknown_keys.empty());
  CHECK(spec.quantization == QuantizationSpec{.is_stored = true, .dtype = "float32"});
}

TEST_CASE("weights in another form are refused by what they are, with what to do") {
  json skips = nf4();
  skips["llm_int8_skip_modules"] = {"lm_head", "down_proj"};
  const std::pair<json, std::string> cases[] = {
      {{{"bits", 4}}, "says that the weights are quantized ({\"bits\":4}), which is not supported"},
      {{{"quant_method", "gptq"}, {"bits", 4}}, "quantized (gptq)"},
      {{{"quant_method", "awq"}}, "quantized (awq)"},
      {{{"quant_method", "fp8"}}, "use the model in 16 bits, of which --load_in_4bit makes NF4"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}},
       "quantized (bitsandbytes without load_in_4bit)"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
       "quantization_config.bnb_4bit_quant_type is \"fp4\"; supported is nf4"},
      {skips, "quantization_config.llm_int8_skip_modules has \"down_proj\""},
      {4, "quantization_config is 4, expected an object"}};
  for (const auto& [quantization, message] : cases) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(read(quantization), doctest::Contains(message.c_str()), Error);
  }
}

}  // namespace zeroth::model::spec_quantization_test
