#include "model/hf/model_modules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "model/blocks/build_blocks.h"
#include "tests/model/materialize.h"

namespace zeroth::model::model_modules_test {
namespace {

using Names = std::vector<std::string>;

ModelSpec spec_of(const std::string& name) {
  return read_model_spec(fixture(name));
}

}  // namespace

TEST_CASE("the modules of a model have exactly the parameters of its blocks") {
  for (const char* name : kFixtures) {
    CAPTURE(name);
    if (spec_of(name).quantization) continue;  // its products are not parameters
    for (const bool biases : {false, true}) {
      ModelSpec spec = spec_of(name);
      if (biases) spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
      Names expected, listed;
      for (const auto& block : build_blocks(spec)) {
        for (const auto& item : block->named_parameters())
          expected.push_back(block->label() + "." + item.key());
      }
      std::set<std::string> paths;
      for (const ModelModule& module : list_modules(spec)) {
        listed.insert(listed.end(), module.parameters.begin(), module.parameters.end());
        CHECK(module.parameters.empty() == (module.kind == ModelModule::Kind::kOther));
        CHECK_MESSAGE(paths.insert(module.path).second, module.path);
      }
      std::sort(expected.begin(), expected.end());
      std::sort(listed.begin(), listed.end());
      CHECK(listed == expected);
    }
  }
}

TEST_CASE("modules have the paths of transformers") {
  const auto path_of = [](const char* name, const std::string& canonical) {
    for (const ModelModule& module : list_modules(spec_of(name)))
      if (module.canonical == canonical) return module.path;
    return std::string("none");
  };
  CHECK(path_of("qwen3_tied", "embedding") == "model.embed_tokens");
  CHECK(path_of("qwen3_tied", "layers.1.attention.k_norm") == "model.layers.1.self_attn.k_norm");
  CHECK(path_of("qwen3_tied", "head") == "lm_head");
  CHECK(path_of("llama", "layers.0.mlp.gate") == "model.layers.0.mlp.gate_proj");
  CHECK(path_of("qwen3_next", "layers.0.delta_net") == "model.layers.0.linear_attn");
  CHECK(path_of("qwen3_next", "layers.0.delta_net.qkvz") ==
        "model.layers.0.linear_attn.in_proj_qkvz");
  CHECK(path_of("qwen3_next", "layers.0.attention.q") == "none");
  CHECK(path_of("qwen3_5", "layers.0.delta_net.o") ==
        "model.language_model.layers.0.linear_attn.out_proj");
  CHECK(path_of("gpt2", "embedding.positions") == "transformer.wpe");
  CHECK(path_of("gpt2", "layers.0.attention.qkv") == "transformer.h.0.attn.c_attn");
  CHECK(path_of("gpt2", "layers.0.mlp.gate") == "none");
  CHECK(path_of("gpt2", "head.norm") == "transformer.ln_f");
  CHECK(path_of("bloom", "embedding.norm") == "transformer.word_embeddings_layernorm");
  CHECK(path_of("apertus", "layers.1.mlp.activation") == "model.layers.1.mlp.act_fn");
  CHECK(path_of("lfm2", "layers.0.conv.depthwise") == "model.layers.0.conv.conv");
  Names others;
  for (const ModelModule& module : list_modules(spec_of("gpt2")))
    if (module.kind == ModelModule::Kind::kOther) others.push_back(module.path);
  CHECK(others.size() == 3 + 2 * 7);  // transformer, .drop, .h, and for each layer itself and six
}

}  // namespace zeroth::model::model_modules_test
