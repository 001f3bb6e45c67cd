#include "model/hf/model_files.h"

#include <doctest/doctest.h>

namespace zeroth::model {

TEST_CASE("a model's files are told from others by their names") {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                           "chat_template.jinja", "generation_config.json", "vocab.json"}) {
    CAPTURE(name);
    CHECK(is_auxiliary_file(name));
    CHECK(is_model_file(name));
  }
  for (const char* name :
       {"config.json", "model.safetensors", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
        "pytorch_model-00001-of-00002.bin", "adapter_config.json", "adapter_model.safetensors",
        "adapter_model.bin", "trainer_state.json", "eval_results.json"}) {
    CAPTURE(name);
    CHECK_FALSE(is_auxiliary_file(name));
    CHECK(is_model_file(name));
  }
  for (const char* name :
       {"metrics.jsonl", "README.md", "notes.txt", "ds_config.json", "data.bin"}) {
    CAPTURE(name);
    CHECK_FALSE(is_model_file(name));
  }
}

}  // namespace zeroth::model
