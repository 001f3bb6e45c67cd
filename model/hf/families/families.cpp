// The table of families.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/hf/families/family.h"

namespace zeroth::model {

Family arcee_family();
Family ernie4_5_family();
Family gpt2_family();
Family granite_family();
Family helium_family();
Family llama_family();
Family ministral_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family seed_oss_family();
Family smollm3_family();
Family starcoder2_family();

namespace {

// In the order of messages.
const auto& table() {
  static const std::array kTable = {
      llama_family(),   mistral_family(),    ministral_family(), qwen2_family(),  qwen3_family(),
      arcee_family(),   ernie4_5_family(),   granite_family(),   helium_family(), seed_oss_family(),
      smollm3_family(), starcoder2_family(), gpt2_family()};
  return kTable;
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto found = std::ranges::find(table(), model_type, &Family::model_type);
  return found == table().end() ? nullptr : &*found;
}

const Family& family_of(const ModelSpec& spec) {
  const Family* const family = find_family(spec.family);
  ZEROTH_CHECK(family != nullptr, "no family {}", spec.family);
  return *family;
}

std::string family_names() {
  std::string names;
  for (const Family& family : table())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.model_type);
  return names;
}

}  // namespace zeroth::model
