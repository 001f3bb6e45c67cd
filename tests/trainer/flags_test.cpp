#include "trainer/flags/flags.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::flags_test {

TEST_CASE("a flag that is not given leaves its value unset") {
  const Flags flags = parse("");
  CHECK(flags.model == "m");
  CHECK(flags.data == std::vector<std::string>{"d.bin"});
  CHECK(flags.shuffle);
  CHECK_FALSE(flags.steps);
  CHECK_FALSE(flags.epochs);
  CHECK_FALSE(flags.seq_len);
  CHECK_FALSE(flags.values.lr);
  CHECK_FALSE(flags.values.betas);
  CHECK_FALSE(flags.values.seed);
  CHECK_FALSE(flags.values.precision);
  CHECK_FALSE(flags.values.gradient_checkpointing);
}

TEST_CASE("every flag of the run arrives where it belongs") {
  const Flags flags = parse(
      "--eval-data e.txt --output=o --overwrite --deterministic --metrics x.jsonl --steps 20 "
      "--seq-len=64 "
      "--no-shuffle --eval-every 10 --max-eval-samples 9 --prompt-field q --completion-field a");
  CHECK(flags.eval_data == std::vector<std::string>{"e.txt"});
  CHECK(flags.output == "o");
  CHECK(flags.overwrite);
  CHECK(flags.deterministic);
  CHECK(flags.metrics == "x.jsonl");
  CHECK(flags.steps == 20);
  CHECK(flags.seq_len == 64);
  CHECK_FALSE(flags.shuffle);
  CHECK(flags.intervals.evaluate == Interval{Interval::Mode::kSteps, 10});
  CHECK(flags.max_eval_samples == 9);
  CHECK(flags.records.prompt_field == "q");
  CHECK(flags.records.completion_field == "a");
  CHECK(parse("--epochs 2.5").epochs == 2.5);
  const Flags more =
      parse("--output o --save-every 5 --timeout 9 --drop-last --eval-micro-batch 3");
  CHECK(more.intervals.save == Interval{Interval::Mode::kSteps, 5});
  CHECK(more.timeout_s == 9);
  CHECK(more.values.drop_last == true);
  CHECK(more.eval_micro_batch == 3);
}

TEST_CASE("every flag that a configuration knows too arrives where it belongs") {
  const auto values = parse(
                          "--seed 7 --micro-batch 2 --accumulation 3 --global-batch 12 --lr 1e-3 "
                          "--weight-decay 0.1 --betas 0.9 0.95 --eps 1e-6 --warmup-steps 5 "
                          "--max-grad-norm 0 --bf16")
                          .values;
  CHECK(values.seed == 7);
  CHECK(values.micro_batch == 2);
  CHECK(values.accumulation == 3);
  CHECK(values.global_batch == 12);
  CHECK(values.lr == 1e-3);
  CHECK(values.weight_decay == 0.1);
  CHECK(values.betas == std::array<double, 2>{0.9, 0.95});
  CHECK(values.eps == 1e-6);
  CHECK(values.warmup_steps == 5);
  CHECK(values.max_grad_norm == 0);
  CHECK(values.precision == configs::Precision::kBf16);
  const auto more = parse("--warmup-ratio 0.1 --no-decay --dropout 0.2 --tensor-parallel 4").values;
  CHECK(more.warmup_ratio == 0.1);
  CHECK(more.no_decay == true);
  CHECK(more.dropout == 0.2);
  CHECK(more.tensor_parallel == 4);
  CHECK(parse("--betas 0.8,0.9").values.betas == std::array<double, 2>{0.8, 0.9});
}

TEST_CASE("the rank that DeepSpeed's launcher passes is ignored") {
  CHECK(parse("--local_rank=1").data == std::vector<std::string>{"d.bin"});
}

TEST_CASE("an unknown flag is answered with the nearest known one") {
  CHECK(has(usage_error("--frobnicate 1"), "--frobnicate: no such flag; --help lists all"));
  CHECK(has(usage_error("--seqlen 64"), "--seqlen: no such flag; did you mean --seq-len?"));
  CHECK(has(usage_error("--micro_batc=2"), "did you mean --micro-batch?"));
  CHECK(has(usage_error("--strict args.json --steps 3"),
            "'args.json': unexpected; a file of flags must"));
  CHECK(has(usage_error("--strict stray"), "'stray': unexpected"));
  CHECK_FALSE(has(usage_error("--seqlen 64"), "'64'"));
}

TEST_CASE("words of a flag are joined by dashes or underscores, as it is typed") {
  const Flags flags = parse(
      "--micro_batch=2 --no_shuffle --save_every 5 --output o --save-total-limit 3 "
      "--inspect_samples 4 --completion_only_loss True");
  CHECK(flags.values.micro_batch == 2);
  CHECK_FALSE(flags.shuffle);
  CHECK(flags.intervals.save.every == 5);
  CHECK(flags.intervals.save_total_limit == 3);
  CHECK(flags.inspect_samples == 4);
  CHECK(has(usage_error("--micro_batch 2 --micro-batch 3"), "--micro-batch"));
  CHECK(
      usage_error("--token_dtype int8 --eval_every 0").starts_with("--token_dtype int8: must be"));
  CHECK(parse("--eval_every 5 --eval-data e.bin").intervals.evaluate.is_on());  // no eval_steps
}

TEST_CASE("all complaints come in one error") {
  const std::string text =
      usage_error_line("--data d --bf16 --fp16 --step 3 --epochs 0 --eval-every 1");
  CHECK(has(text, "--model is missing"));
  CHECK(has(text, "--bf16, --fp16 and --fp32 exclude each other"));
  CHECK(has(text, "--step: no such flag; did you mean --steps?"));
  CHECK(has(text, "--epochs 0: must be above 0"));
  CHECK(has(text, "--eval-every needs --eval-data"));
}

TEST_CASE("of thousands of unknown flags twenty are named and the others counted") {
  std::vector<std::string> arguments;
  for (int i = 0; i < 6'000; ++i) arguments.push_back(fmt::format("--seqlen{}", i));
  const std::string said = message_of<Error>([&] { parse_flags(arguments); });
  CHECK(has(said, "--seqlen0: no such flag; did you mean --seq-len?"));
  CHECK(said.ends_with("\n  and 5982 more"));  // --model and --data are missing, too
  CHECK(said.size() < 2000);
}

TEST_CASE("what is long on a command line is cut in every complaint about it") {
  const std::string text(10'000, '7');
  const std::vector<std::string> flags = {"--",
                                          "",
                                          "--steps ",
                                          "--steps -",
                                          "--lr x",
                                          "--betas x,",
                                          "--loss-mean ",
                                          "--deterministic=x",
                                          "--gradient-checkpointing=",
                                          "--separator \\q",
                                          "--data --",
                                          "--report_to ",
                                          "--max_steps 1 --max_steps ",
                                          "--deepspeed_config c --deepspeed ",
                                          "--eval-data ",
                                          "--metrics ",
                                          "--output "};
  for (const std::string& flag : flags) {
    CAPTURE(flag);
    const std::string said = usage_error(flag + text);
    CHECK(has(said, "... (100"));
    CHECK(said.size() < 500);
  }
}

TEST_CASE("values that do not parse name their flag") {
  CHECK(has(usage_error("--lr fast"), "--lr"));
  CHECK(has(usage_error("--steps 1e3"), "--steps"));
  CHECK(has(usage_error("--betas 0.9"), "--betas"));
  CHECK(has(usage_error_line("--model m --data --lr"), "--data needs a value before --lr"));
}

TEST_CASE("a flag without its value and a repeated flag are told in plain words") {
  CHECK(usage_error("--steps --lr 3") == "--steps needs a value before --lr");
  CHECK(usage_error("--betas --lr 3") == "--betas needs a value before --lr");
  CHECK(usage_error("--steps") == "--steps needs a value");
  CHECK(usage_error("--betas 0.9") == "--betas needs 2 values");
  CHECK(usage_error("--betas") == "--betas needs a value");
  CHECK(usage_error("--steps 3 --steps 4") == "--steps is given twice");
  CHECK(usage_error("--local_rank x") == "--local_rank x: must be a whole number");
  CHECK(usage_error("--local_rank --steps") == "--local_rank needs a value before --steps");
  CHECK(usage_error("--deterministic=maybe") == "--deterministic=maybe: does not accept a value");
  CHECK(usage_error("--betas 0.9 x") == "--betas 0.9 x: must be a number");
  CHECK(usage_error_line("--model m --model n --data d.bin") == "--model is given twice");
}

TEST_CASE("help calls float32 the default") {
  CHECK(has(parse_line("--help").answer, "train in float32 (the default)"));
}

TEST_CASE("help lists the flags by group and needs nothing else") {
  const std::string text = parse_line("--help").answer;
  for (const char* part : {"Files:", "Batch and memory:", "Evaluation:", "--gradient-checkpointing",
                           "--deepspeed_config", "--max-grad-norm",
                           "Saving:", "--learning_rate                --lr\n"}) {
    CHECK_MESSAGE(has(text, part), part);
  }
  CHECK_FALSE(has(text, "local_rank"));
  CHECK(has(parse_line("--version").answer, "finetune (Zeroth) "));
}

TEST_CASE("empty_flag_value: a flag of finetune, or a key of its file, that is empty is an error") {
  for (const char* const flag : {"--output", "--output_dir", "--eval-data", "--metrics", "--resume",
                                 "--lr", "--deepspeed", "--run_name", "--report_to"}) {
    CAPTURE(flag);
    const std::string text = fmt::format("{} needs a value", flag);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--model", "m", flag, ""},
          std::vector<std::string>{"--model", "m", fmt::format("{}=", flag), "--steps", "2"}})
      CHECK(message_of<Error>([&] { parse_flags(words); }) == text);
  }
  const TempFolder directory;
  const std::string file =
      directory.write("args.json", R"({"model_name_or_path": "m", "output_dir": "", "fsdp": ""})");
  CHECK(message_of<Error>([&] { parse_flags({file}); }) == "--output_dir needs a value");
}

}  // namespace zeroth::trainer::flags_test
