#include "trainer/flags/flag_rules.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::flag_rules_test {

TEST_CASE("the configuration is named in Hugging Face's way and in DeepSpeed's") {
  CHECK(parse("--deepspeed ds.json").config == "ds.json");
  CHECK(parse("--deepspeed_config ds.json").config == "ds.json");
  CHECK(parse("--deepspeed --deepspeed_config ds.json").config == "ds.json");
  CHECK(has(usage_error("--deepspeed"), "--deepspeed needs the name"));
  CHECK(has(usage_error("--deepspeed a --deepspeed_config b"), "give one of them"));
}

TEST_CASE("recompute takes every block unless a number follows") {
  CHECK(parse("--gradient-checkpointing").values.gradient_checkpointing == 1);
  CHECK(parse("--gradient-checkpointing=3").values.gradient_checkpointing == 3);
  CHECK(has(usage_error("--gradient-checkpointing=0"), "above 0"));
  CHECK(has(usage_error("--gradient-checkpointing=two"), "two"));
}

TEST_CASE("a flag with few values lists them when another one is given") {
  using configs::LossMean, configs::OnNonFinite;
  CHECK_FALSE(parse("").values.loss_mean);
  CHECK(parse("--loss-mean token").values.loss_mean == LossMean::kToken);
  CHECK(parse("--loss-mean micro-batch").values.loss_mean == LossMean::kMicroBatch);
  CHECK(parse("--on-non-finite fail").values.on_non_finite == OnNonFinite::kFail);
  CHECK(parse("--output o --save-dtype bf16").save_dtype == torch::kBFloat16);
  CHECK(usage_error("--loss-mean tokens") ==
        "--loss-mean tokens: must be one of token, micro-batch");
  CHECK(usage_error("--on-non-finite x") == "--on-non-finite x: must be one of skip, fail");
  CHECK(has(usage_error("--output o --save-dtype int8"), "must be one of fp32, bf16, fp16"));
  CHECK(usage_error("--save-dtype fp32") == "--save-dtype needs --output");
  CHECK(usage_error("--save-every 3") == "--save-every needs --output");
}

TEST_CASE("flags about the file alone reach its reader") {
  CHECK_FALSE(parse("").values.strict);
  CHECK(parse("--strict").values.strict);
  CHECK_FALSE(parse("").values.accept_uncompressed);
  CHECK(parse("--accept-uncompressed").values.accept_uncompressed);
}

TEST_CASE("flags about adapters reach the configuration") {
  CHECK_FALSE(parse("").values.use_peft);
  const auto values = parse(
                          "--use_peft --lora_r 4 --lora_alpha 0.5 --lora_dropout 0 --use_rslora "
                          "--lora_target_modules q_proj v_proj --lora_modules_to_save lm_head")
                          .values;
  CHECK(values.use_peft);
  CHECK(values.lora_r == 4);
  CHECK(values.lora_alpha == 0.5);
  CHECK(values.lora_dropout == 0);
  CHECK(values.use_rslora == true);
  CHECK(values.lora_target_modules == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(values.lora_modules_to_save == std::vector<std::string>{"lm_head"});
  CHECK(has(usage_error("--lora_r four"), "--lora_r four: must be a whole number"));
}

TEST_CASE("names of modules may be joined by commas, which a regular expression may contain") {
  using Names = std::vector<std::string>;
  const auto names = [](const std::string& words) {
    return parse("--lora_target_modules " + words).values.lora_target_modules;
  };
  CHECK(names("q_proj,v_proj") == Names{"q_proj", "v_proj"});
  CHECK(names("q_proj, v_proj,,k_proj --steps 1") == Names{"q_proj", "v_proj", "k_proj"});
  CHECK(names(R"(.*\.\d{1,2}\.[a,b](c,d))") == Names{R"(.*\.\d{1,2}\.[a,b](c,d))"});
  CHECK(names("all-linear") == Names{"all-linear"});
  CHECK(names("None").empty());
}

TEST_CASE("an adapter to continue turns adapters on, and needs its base") {
  CHECK(parse("").adapter.empty());
  CHECK(parse("--adapter a").adapter == "a");
  CHECK(parse("--adapter a").values.use_peft);
  CHECK_FALSE(parse("--adapter a").values.lora_r);
  CHECK(has(usage_error_line("--adapter a --data d.bin"), "--model is missing"));
  CHECK(has(usage_error("--adapter"), "--adapter needs a value"));
}

TEST_CASE("what is trained is asked for at once, or by TRL's flags for one kind of records") {
  using data::TrainOn;
  const auto line = [](const std::string& text) {
    return parse_line("--model m --data d.jsonl " + text).records;
  };
  CHECK(line("").chats_train_on == TrainOn::kAssistant);
  CHECK(line("").pairs_train_on == TrainOn::kCompletion);
  CHECK(line("--train-on last-assistant").chats_train_on == TrainOn::kLastAssistant);
  CHECK(line("--train-on all").pairs_train_on == TrainOn::kAll);
  CHECK(line("--assistant_only_loss False").chats_train_on == TrainOn::kAll);
  CHECK(line("--assistant_only_loss False").pairs_train_on == TrainOn::kCompletion);
  CHECK(line("--completion_only_loss False").pairs_train_on == TrainOn::kAll);
  CHECK(line("--completion_only_loss True --train-on completion").pairs_train_on ==
        TrainOn::kCompletion);
  CHECK(has(usage_error("--train-on all --assistant_only_loss True"), "contradict each other"));
  CHECK(has(usage_error("--train-on answers"), "--train-on answers"));
  CHECK(line("--dataset_text_field content").text_field == "content");
  CHECK(line("--chat_template_path t.jinja").chat_template == "t.jinja");
}

TEST_CASE("a separator knows the escapes that a shell hands over") {
  const auto line = [](const char* text) {
    return parse_line("--model m --data d.jsonl --separator " + std::string(text));
  };
  CHECK_FALSE(parse_line("--model m --data d.jsonl").records.separator);
  CHECK(parse_line("--model m --data d.jsonl --separator= --steps 1").records.separator == "");
  CHECK(parse_flags({"--model", "m", "--data", "d.jsonl", "--separator", ""}).records.separator ==
        "");
  CHECK(line(R"(\n\tA:\\)").records.separator == "\n\tA:\\");
  CHECK(
      has(usage_error_line(R"(--model m --data d.jsonl --separator \x)"), "invalid escape, only"));
  CHECK(has(usage_error(R"(--separator x)"), "of .jsonl or .json data"));
}

TEST_CASE("flags that contradict each other are refused") {
  CHECK(has(usage_error("--steps 3 --epochs 1"), "--steps and --epochs"));
  CHECK(has(usage_error("--bf16 --fp32"), "--bf16, --fp16 and --fp32 exclude each other"));
  CHECK(has(usage_error("--prompt-field q"), "must be given together"));
  CHECK(has(usage_error("--overwrite"), "--overwrite needs --output"));
  CHECK(has(usage_error("--eval-only --steps 3"), "leave --steps out"));
  CHECK(has(usage_error("--eval-only --save-every 3 --output o"), "leave --save-every out"));
  CHECK(usage_error("--eval-only --output o") == "");
  CHECK(has(usage_error("--max-eval-samples 3"), "needs --eval-data"));
}

TEST_CASE("counts must be above 0 and the seed not below it") {
  CHECK(has(usage_error("--steps 0"), "--steps 0: must be above 0"));
  CHECK(has(usage_error("--epochs -1"), "--epochs -1: must be above 0"));
  CHECK(has(usage_error("--epochs nan"), "--epochs nan: must be above 0"));
  CHECK(has(usage_error("--seq-len -5"), "--seq-len -5: must be above 0"));
  CHECK(has(usage_error("--seed -1"), "--seed -1: must be at least 0"));
}

TEST_CASE("evaluation alone takes its data from either flag") {
  CHECK(parse_line("--model m --eval-only --data d").eval_only);
  CHECK(parse_line("--model m --eval-only --eval-data e").eval_data ==
        std::vector<std::string>{"e"});
  const Flags both = parse("--eval-only --eval-data e");
  REQUIRE(both.notes.size() == 1);
  CHECK(has(both.notes[0].text, "--data is not read"));
  CHECK(has(usage_error_line("--model m --eval-only"), "--data is missing"));
}

TEST_CASE("printing the configuration needs no data") {
  CHECK(parse_line("--model m --print-config").print_config);
  CHECK(has(usage_error_line("--model m"), "--data is missing"));
}

TEST_CASE(
    "a run goes on from its output, from a folder, or where there is something to go on from") {
  using From = ResumeFlags::From;
  const auto from = [](const std::string& more) { return parse("--output o " + more).resume; };
  CHECK(from("").from == From::kNothing);
  CHECK(from("--resume").from == From::kNewest);
  CHECK(from("--resume_from_checkpoint True").from == From::kNewest);
  CHECK(from("--resume_from_checkpoint False").from == From::kNothing);
  CHECK(from("--resume auto").from == From::kNewestOrNothing);
  CHECK(from("--resume out/checkpoints/step-8").directory == "out/checkpoints/step-8");
  CHECK(from("--resume_from_checkpoint out/checkpoint-8").directory == "out/checkpoint-8");
  CHECK(parse("--resume other").resume.from == From::kNamed);
  const ResumeFlags all =
      from("--resume --allow-batch-change --allow-change scheduler --allow-change dropout");
  CHECK(all.allow_batch_change);
  CHECK(all.may_change == std::vector<std::string>{"scheduler", "dropout"});
  CHECK(has(usage_error("--resume"), "--resume needs --output"));
  CHECK(has(usage_error("--allow-batch-change"), "--allow-batch-change needs --resume"));
  CHECK(has(usage_error("--allow-change lr"), "--allow-change needs --resume"));
  CHECK(has(usage_error("--eval-only --output o --resume"), "leave --resume out"));
}

TEST_CASE("how a state is saved is said by flags of its own") {
  const StateFlags usual = parse("--output o --save-every 5").state;
  CHECK_FALSE(usual.only_model);
  CHECK_FALSE(usual.sync);
  CHECK(usual.max_save_failures == 3);
  const StateFlags all = parse(
                             "--output o --save-every 5 --save_only_model true --save-sync "
                             "--save-failures 1 --grace 30 --save-minutes 0.5")
                             .state;
  CHECK(all.only_model);
  CHECK(all.sync);
  CHECK(all.max_save_failures == 1);
  CHECK(all.grace_s == 30);
  CHECK(all.every_minutes == 0.5);
  CHECK(has(usage_error("--output o --save-failures 0"), "--save-failures 0: must be at least 1"));
  CHECK(has(usage_error("--grace 0"), "--grace 0: must be above 0"));
  CHECK(has(usage_error("--output o --save-minutes 0"), "--save-minutes 0: must be above 0"));
  CHECK(has(usage_error("--save-minutes 5"), "--save-minutes needs --output"));
}

}  // namespace zeroth::trainer::flag_rules_test
