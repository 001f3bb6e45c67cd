// The table of families.
#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "model/hf/families/family.h"

namespace zeroth::model {

Family apertus_family();
Family arcee_family();
Family bloom_family();
Family cohere_family();
Family cohere2_family();
Family deepseek_v2_family();
Family deepseek_v3_family();
Family ernie4_5_family();
Family ernie4_5_moe_family();
Family exaone4_family();
Family falcon_family();
Family gemma_family();
Family gemma2_family();
Family gemma3_text_family();
Family gemma4_text_family();
Family glm_family();
Family glm4_family();
Family glm4_moe_family();
Family gpt2_family();
Family gpt_bigcode_family();
Family gpt_neox_family();
Family gpt_oss_family();
Family gptj_family();
Family granite_family();
Family granitemoe_family();
Family granitemoehybrid_family();
Family helium_family();
Family hunyuan_v1_dense_family();
Family lfm2_family();
Family llama_family();
Family llama4_text_family();
Family minicpm3_family();
Family ministral_family();
Family ministral3_family();
Family mistral_family();
Family mixtral_family();
Family mpt_family();
Family nemotron_family();
Family olmo_family();
Family olmo2_family();
Family olmo3_family();
Family olmoe_family();
Family opt_family();
Family phi_family();
Family phi3_family();
Family qwen2_family();
Family qwen2_moe_family();
Family qwen3_family();
Family qwen3_5_moe_text_family();
Family qwen3_5_text_family();
Family qwen3_moe_family();
Family qwen3_next_family();
Family seed_oss_family();
Family smollm3_family();
Family stablelm_family();
Family starcoder2_family();

namespace {

const auto& table() {
  static const std::array kTable = {apertus_family(),
                                    arcee_family(),
                                    bloom_family(),
                                    cohere_family(),
                                    cohere2_family(),
                                    deepseek_v2_family(),
                                    deepseek_v3_family(),
                                    ernie4_5_family(),
                                    ernie4_5_moe_family(),
                                    exaone4_family(),
                                    falcon_family(),
                                    gemma_family(),
                                    gemma2_family(),
                                    gemma3_text_family(),
                                    gemma4_text_family(),
                                    glm_family(),
                                    glm4_family(),
                                    glm4_moe_family(),
                                    gpt2_family(),
                                    gpt_bigcode_family(),
                                    gpt_neox_family(),
                                    gpt_oss_family(),
                                    gptj_family(),
                                    granite_family(),
                                    granitemoe_family(),
                                    granitemoehybrid_family(),
                                    helium_family(),
                                    hunyuan_v1_dense_family(),
                                    lfm2_family(),
                                    llama_family(),
                                    llama4_text_family(),
                                    minicpm3_family(),
                                    ministral_family(),
                                    ministral3_family(),
                                    mistral_family(),
                                    mixtral_family(),
                                    mpt_family(),
                                    nemotron_family(),
                                    olmo_family(),
                                    olmo2_family(),
                                    olmo3_family(),
                                    olmoe_family(),
                                    opt_family(),
                                    phi_family(),
                                    phi3_family(),
                                    qwen2_family(),
                                    qwen2_moe_family(),
                                    qwen3_family(),
                                    qwen3_5_moe_text_family(),
                                    qwen3_5_text_family(),
                                    qwen3_moe_family(),
                                    qwen3_next_family(),
                                    seed_oss_family(),
                                    smollm3_family(),
                                    stablelm_family(),
                                    starcoder2_family()};
  return kTable;
}

constexpr std::string_view kGemma3[] = {"gemma3_text"};
constexpr std::string_view kGemma4[] = {"gemma4_text"};
constexpr std::string_view kMistral3[] = {"mistral", "ministral3"};
constexpr std::string_view kLlama4[] = {"llama4_text"};
constexpr std::string_view kQwen35[] = {"qwen3_5_text"};
constexpr std::string_view kQwen35Moe[] = {"qwen3_5_moe_text"};
constexpr MultimodalFamily kMultimodal[] = {
    {"gemma3", kGemma3, /*tied=*/true},   {"gemma4", kGemma4, /*tied=*/true},
    {"llama4", kLlama4, /*tied=*/false},  {"mistral3", kMistral3, /*tied=*/true},
    {"qwen3_5", kQwen35, /*tied=*/false}, {"qwen3_5_moe", kQwen35Moe, /*tied=*/false}};

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto found = std::ranges::find(table(), model_type, &Family::model_type);
  return found == table().end() ? nullptr : &*found;
}

const MultimodalFamily* find_multimodal_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kMultimodal, model_type, &MultimodalFamily::model_type);
  return found == std::end(kMultimodal) ? nullptr : found;
}

const Family& family_of(const ModelSpec& spec) {
  const Family* const family = find_family(spec.family);
  ZEROTH_CHECK(family != nullptr, "no family {}", spec.family);
  return family->variant == nullptr ? *family : *family->variant(spec);
}

Family family_in_memory(const ModelSpec& spec) {
  Family family = family_of(spec);
  if (spec.multimodal) family.prefix = "model.language_model.";
  return family;
}

Family family_in_files(const ModelSpec& spec) {
  Family family = family_in_memory(spec);
  if (!spec.multimodal || !spec.multimodal->has_old_names) return family;
  family.prefix = "language_model.model.";
  family.head = "language_model.lm_head.";
  return family;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : table()) names.push_back(family.model_type);
  for (const MultimodalFamily& family : kMultimodal) {
    if (std::ranges::any_of(family.text_families, find_family)) names.push_back(family.model_type);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace zeroth::model
