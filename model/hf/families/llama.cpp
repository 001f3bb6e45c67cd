// Llama 1 to 3 and the many models of its form: SmolLM, Yi, TinyLlama.
#include "model/hf/families/decoder.h"

namespace zeroth::model {

Family llama_family() {
  return {.model_type = "llama",
          .read =
              [](ConfigReader& config, ModelSpec& spec) {
                read_decoder(config, spec, {.max_positions = 2048});
                read_biases(config, spec);
              },
          .lora_targets = llama_targets()};
}

}  // namespace zeroth::model
