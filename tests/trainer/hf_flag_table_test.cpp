#include "trainer/flags/hf_flags.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::hf_flag_table_test {

TEST_CASE("a spelling of Hugging Face stands for a flag that there is, or says why not") {
  const std::string help = parse_line("--help").answer;
  std::set<std::string_view> names;
  for (const HfFlag& flag : hf_flags()) {
    CAPTURE(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK(flag.name.find('-') == std::string_view::npos);
    const bool explained = flag.kind == HfFlag::Kind::kIgnored ||
                           flag.kind == HfFlag::Kind::kRequest ||
                           flag.kind == HfFlag::Kind::kRefused;
    const bool alias = !explained && flag.kind != HfFlag::Kind::kBeta;
    if (alias) CHECK(has(help, "  " + std::string(flag.target)));
    CHECK(explained == !flag.text.empty());
  }
}

// The fields of TrainingArguments (of transformers 5.17, 4.57 and 4.30) and of run_clm.py's own
// arguments: tools/make_flag_fixtures.py.
TEST_CASE("every field of TrainingArguments and of run_clm.py is honoured, noted or refused") {
  const auto fields = nlohmann::json::parse(std::ifstream(std::filesystem::path(ZEROTH_SOURCE_DIR) /
                                                          "tests/trainer/fixtures/hf_fields.json"));
  std::set<std::string> names;
  for (const auto& [source, list] : fields.items()) {
    for (const auto& name : list) names.insert(name.get<std::string>());
  }
  CHECK(names.size() > 160);
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto known = hf_flags();
    const bool in_table = std::any_of(known.begin(), known.end(),
                                      [&](const HfFlag& flag) { return flag.name == name; });
    CHECK((in_table || name == "deepspeed" || name == "local_rank"));
    CHECK_FALSE(has(usage_error_line("--" + name + " 1"), "no such flag"));
  }
}

TEST_CASE("the values that Trainer has by itself are never refused, but for those of services") {
  for (const char* line :
       {"--optim adamw_torch_fused", "--group_by_length False", "--train_sampling_strategy random",
        "--average_tokens_across_devices True", "--label_smoothing_factor 0", "--data_seed None",
        "--validation_split_percentage 5", "--keep_linebreaks True", "--fsdp False",
        "--model_revision main", "--max_steps -1", "--push_to_hub False", "--debug",
        "--torch_compile False", "--do_predict False", "--bf16_full_eval False",
        "--use_peft False --lora_task_type CAUSAL_LM --lora_target_modules None --use_dora False",
        "--load_in_4bit False --bnb_4bit_quant_type nf4 --bnb_4bit_quant_storage None"}) {
    CAPTURE(line);
    CHECK(usage_error(line) == "");
  }
}

TEST_CASE("a command line of TRL trains adapters, and one of axolotl's words does") {
  using Names = std::vector<std::string>;
  const auto trl = parse(
                       "--use_peft True --lora-r 8 --lora_alpha 16 --lora_dropout 0.1 --use_rslora "
                       "True --lora_target_modules q_proj v_proj --lora_modules_to_save lm_head "
                       "embed_tokens --lora_task_type CAUSAL_LM")
                       .values;
  CHECK(trl.use_peft);
  CHECK(trl.lora_r == 8);
  CHECK(trl.lora_alpha == 16);
  CHECK(trl.lora_dropout == 0.1);
  CHECK(trl.use_rslora == true);
  CHECK(trl.lora_target_modules == Names{"q_proj", "v_proj"});
  CHECK(trl.lora_modules_to_save == Names{"lm_head", "embed_tokens"});
  const Flags axolotl =
      parse("--lora_target_linear True --peft_use_rslora False --lora_model_dir old --lora_r 8");
  CHECK(axolotl.values.lora_target_modules == Names{"all-linear"});
  CHECK(axolotl.values.use_rslora == false);
  CHECK(axolotl.adapter == "old");
  CHECK(parse("--lora_target_linear False").values.lora_target_modules.empty());
}

TEST_CASE("adapters of other kinds, and weights in 8 bits, are refused") {
  CHECK(usage_error("--use_dora") ==
        "--use_dora: not supported: the adapter's norms are not implemented");
  CHECK(has(usage_error("--peft_use_dora True"), "the adapter's norms are not implemented"));
  CHECK(has(usage_error("--lora_task_type SEQ_CLS"), "only causal language models are trained"));
  CHECK(has(usage_error("--lora_target_parameters a b"), "name it in --lora_target_modules"));
  CHECK(has(usage_error("--load_in_8bit True"), "--load_in_4bit keeps them in NF4"));
}

TEST_CASE("the flags of TRL for weights in 4 bits are understood") {
  const Flags flags = parse(
      "--load_in_4bit True --use_bnb_nested_quant --bnb_4bit_quant_type nf4 "
      "--bnb_4bit_quant_storage bfloat16");
  CHECK(flags.values.load_in_4bit);
  CHECK(flags.values.use_bnb_nested_quant == true);
  CHECK(flags.values.bnb_4bit_quant_type == "nf4");
  CHECK_FALSE(parse("--load_in_4bit False").values.load_in_4bit);
}

}  // namespace zeroth::trainer::hf_flag_table_test
