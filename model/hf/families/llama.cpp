// Llama 1 to 3 and the many models of its form: SmolLM, Yi, TinyLlama.
#include "model/hf/families/decoder.h"

namespace zeroth::model {

Family llama_family() {
  return {.model_type = "llama",
          .read =
              [](ConfigReader& config, ModelSpec& spec) {
                read_decoder(config, spec, {.max_positions = 2048});
                spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
                spec.mlp_bias = config.flag("mlp_bias", false);
              },
          .names = llama_names(),
          .buffers = rotary_buffers(),
          .lora_targets = llama_targets()};
}

}  // namespace zeroth::model
