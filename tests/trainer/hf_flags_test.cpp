#include "trainer/flags/hf_flags.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::hf_flags_test {

TEST_CASE("a command line of Hugging Face's scripts is understood") {
  const Flags flags = parse_line(
      "--model_name_or_path m --train_file d.jsonl --validation_file e.jsonl --output_dir o "
      "--overwrite_output_dir True --do_train --per_device_train_batch_size 4 "
      "--per_device_eval_batch_size 6 --gradient_accumulation_steps=2 --num_train_epochs 3 "
      "--learning_rate 2e-5 --weight_decay 0.1 --adam_beta1 0.8 --adam_beta2 0.95 "
      "--adam_epsilon 1e-6 --max_grad_norm 0.5 --warmup_ratio 0.03 --bf16 True "
      "--gradient_checkpointing True --seed 7 --save_steps 50 --eval_strategy steps --eval_steps "
      "25 --logging_steps 1 "
      "--max_seq_length 64 --dataloader_drop_last True --report_to none --max_steps -1 "
      "--lr_scheduler_type cosine --ddp_timeout 60 --save_total_limit 2 --deepspeed ds.json");
  CHECK(flags.model == "m");
  CHECK(flags.data == std::vector<std::string>{"d.jsonl"});
  CHECK(flags.eval_data == std::vector<std::string>{"e.jsonl"});
  CHECK(flags.output == "o");
  CHECK(flags.overwrite);
  CHECK(flags.values.micro_batch == 4);
  CHECK(flags.eval_micro_batch == 6);
  CHECK(flags.values.accumulation == 2);
  CHECK(flags.epochs == 3);
  CHECK_FALSE(flags.steps);
  CHECK(flags.values.lr == 2e-5);
  CHECK(flags.values.weight_decay == 0.1);
  CHECK(flags.values.betas == std::array<double, 2>{0.8, 0.95});
  CHECK(flags.values.eps == 1e-6);
  CHECK(flags.values.max_grad_norm == 0.5);
  CHECK(flags.values.warmup_ratio == 0.03);
  CHECK(flags.values.precision == configs::Precision::kBf16);
  CHECK(flags.values.gradient_checkpointing == 1);
  CHECK(flags.values.seed == 7);
  CHECK(flags.intervals.save == Interval{Interval::Mode::kSteps, 50});
  CHECK(flags.intervals.evaluate == Interval{Interval::Mode::kSteps, 25});
  CHECK(flags.intervals.log == Interval{Interval::Mode::kSteps, 1});
  CHECK(flags.intervals.save_total_limit == 2);
  CHECK(flags.max_length == 64);
  CHECK(flags.values.drop_last == true);
  CHECK(flags.timeout_s == 60);
  CHECK(flags.values.schedule == configs::HfSchedule::Type::kCosine);
  CHECK(flags.config == "ds.json");
  CHECK(flags.values.for_trainer);
  CHECK_FALSE(flags.eval_only);
  CHECK(flags.notes.empty());
}

TEST_CASE("hyphens and underscores are one, and a truth value may follow our own switches") {
  CHECK(parse("--learning-rate 1e-3").values.lr == 1e-3);
  CHECK(parse("--max_grad_norm 2").values.max_grad_norm == 2);
  CHECK(parse("--bf16 true").values.precision == configs::Precision::kBf16);
  CHECK_FALSE(parse("--bf16 False").values.precision);
  CHECK_FALSE(parse("--gradient-checkpointing False").values.gradient_checkpointing);
  CHECK(parse("--adam_beta2 0.95").values.betas == std::array<double, 2>{0.9, 0.95});
}

TEST_CASE("two spellings of one flag agree, or are an error") {
  CHECK(parse("--lr 5e-5 --learning_rate 0.00005").values.lr == 5e-5);
  CHECK(parse("--learning_rate 5e-5 --lr 5e-5").values.lr == 5e-5);
  CHECK(parse("--bf16 --bf16 True").values.precision == configs::Precision::kBf16);
  CHECK(usage_error("--learning_rate 1e-3 --lr 2e-3") ==
        "--learning_rate 1e-3 and --lr 2e-3 are the same flag: give it once");
  CHECK(usage_error("--lr 2e-3 --learning_rate 1e-3") ==
        "--lr 2e-3 and --learning_rate 1e-3 are the same flag: give it once");
  CHECK(usage_error("--lr 1 --lr 1") == "--lr is given twice");
  CHECK(usage_error("--betas 0.9 0.95 --adam_beta1 0.8") ==
        "--adam_beta1 and --betas are the same flag: give one of them");
}

TEST_CASE(
    "what would change the training and is not there is refused, unless it asks for nothing") {
  CHECK(has(usage_error("--optim adafactor"),
            "AdamW is the default, and \"optimizer\" in ds_config.json chooses another"));
  CHECK(has(usage_error("--push_to_hub"), "--push_to_hub: not supported: "));
  CHECK(has(usage_error("--lr_scheduler_type exponential"),
            "must be one of constant, constant_with_warmup, linear, cosine, cosine_with_restarts, "
            "polynomial, inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr, "
            "warmup_stable_decay, reduce_lr_on_plateau"));
  CHECK(
      has(usage_error("--lr_scheduler_type greedy"), "reduce_lr_on_plateau, which only lowers it"));
  CHECK(usage_error("--optim adamw_torch --push_to_hub False --label_smoothing_factor 0.0") == "");
  CHECK(has(usage_error("--bf16 --fp16 True --load_in_8bit"), "in 8 bits"));
}

TEST_CASE("a schedule of transformers comes with its arguments") {
  const Flags flags =
      parse_flags({"--model_name_or_path", "m", "--train_file", "d.bin", "--lr_scheduler_type",
                   "cosine_with_restarts", "--lr_scheduler_kwargs", "{\"num_cycles\": 2}"});
  CHECK(flags.values.schedule == configs::HfSchedule::Type::kCosineWithRestarts);
  CHECK(flags.values.schedule_kwargs == "{\"num_cycles\": 2}");
  CHECK(parse("--lr_scheduler_kwargs None").values.schedule_kwargs.empty());
}

TEST_CASE("a rate that follows evaluations needs some, and keeps account of the best") {
  CHECK(usage_error("--lr_scheduler_type reduce_lr_on_plateau") ==
        "--lr_scheduler_type reduce_lr_on_plateau needs --eval_strategy steps or epoch: it follows "
        "the loss of evaluations");
  CHECK(parse("--lr_scheduler_type reduce_lr_on_plateau --eval-every 5 --eval-data e.bin")
            .intervals.tracks_best);
}

TEST_CASE("warm-up steps below 1 are a part of the run") {
  CHECK(parse("--warmup_steps 0.1").values.warmup_ratio == 0.1);
  CHECK_FALSE(parse("--warmup_steps 0.1").values.warmup_steps);
  CHECK(parse("--warmup_steps 3.0").values.warmup_steps == 3);
  CHECK(parse("--warmup-steps 0").values.warmup_steps == 0);
  CHECK(
      usage_error("--warmup_steps 2.5") ==
      "--warmup_steps 2.5: must be a whole number of steps, or below 1 as a fraction of all steps");
  // As in transformers 4.
  CHECK(parse("--warmup_steps 0 --warmup_ratio 0.03").values.warmup_ratio == 0.03);
  const Flags both = parse("--output_dir o --warmup_steps 10 --warmup_ratio 0.03");
  CHECK(both.values.warmup_steps == 10);
  CHECK_FALSE(both.values.warmup_ratio);
  REQUIRE(both.notes.size() == 1);
  CHECK(both.notes[0].text == "--warmup_ratio 0.03: no effect with --warmup_steps 10");
}

TEST_CASE("what is wrong is told of the flag that was typed") {
  CHECK(usage_error("--learning_rate") == "--learning_rate needs a value");
  CHECK(usage_error("--learning_rate --bf16") == "--learning_rate needs a value before --bf16");
  CHECK(usage_error("--steps -1") == "--steps -1: must be above 0");
  CHECK(usage_error("--max_steps -2") == "--max_steps -2: must be above 0");
  CHECK(usage_error("--learning_rate fast") == "--learning_rate fast: must be a number");
  CHECK(usage_error("--max_train_samples 0") == "--max_train_samples 0: must be above 0");
  CHECK(usage_error("--overwrite_output_dir maybe --output o") == "'maybe': unexpected");
  CHECK(has(usage_error("--learning_rat 1"), "did you mean --learning_rate?"));
}

TEST_CASE("a flag without effect is noted with the reason, with all of its values") {
  const Flags flags = parse("--label_names labels more --use_liger_kernel True --lr 1");
  REQUIRE(flags.notes.size() == 2);
  CHECK(flags.notes[0].text ==
        "--label_names: no effect here: the labels are the tokens themselves");
  CHECK(has(flags.notes[1].text, "--use_liger_kernel: no effect here: "));
  CHECK(flags.values.lr == 1);
}

TEST_CASE("--optim selects an optimizer by Trainer's name, and says that nothing is paged") {
  CHECK_FALSE(parse("--optim adamw_torch").values.optimizer.has_value());
  for (const auto& [name, type] : {std::pair{"adamw_8bit", "AdamW8bit"},
                                   {"adamw_bnb_8bit", "AdamW8bit"},
                                   {"SGD", "SGD"},
                                   {"adagrad", "Adagrad"},
                                   {"lion_32bit", "Lion"}}) {
    const Flags flags = parse(fmt::format("--optim {}", name));
    CHECK(flags.values.optimizer == type);
    CHECK(flags.notes.empty());
  }
  for (const auto& [name, type] : {std::pair{"paged_adamw_8bit", "AdamW8bit"},
                                   {"paged_adamw_32bit", "AdamW"},
                                   {"paged_lion_32bit", "Lion"}}) {
    const Flags flags = parse(fmt::format("--optim {}", name));
    CHECK(flags.values.optimizer == type);
    REQUIRE(flags.notes.size() == 1);
    CHECK(flags.notes[0].text ==
          fmt::format("--optim {}: {}, whose states are not paged: "
                      "zero_optimization.offload_optimizer in ds_config.json keeps them in CPU "
                      "memory or a file",
                      name, type));
  }
  CHECK(has(usage_error("--optim lion_8bit"), "--optim lion_8bit: not supported: "));
}

TEST_CASE("beside --max_steps epochs do not count, as in Trainer") {
  const Flags flags = parse("--num_train_epochs 3 --max_steps 20");
  CHECK(flags.steps == 20);
  CHECK_FALSE(flags.epochs);
  REQUIRE(flags.notes.size() == 1);
  CHECK(flags.notes[0].text == "--num_train_epochs 3: no effect with --max_steps 20");
  CHECK(parse("--num_train_epochs 3 --max_steps -1").epochs == 3);
  CHECK(has(usage_error("--epochs 3 --steps 20"), "exclude each other"));
}

TEST_CASE("--use_cpu and --no_cuda keep a run on the CPU") {
  CHECK(parse("--use_cpu").use_cpu);
  CHECK(parse("--no_cuda True").use_cpu);
  CHECK_FALSE(parse("--use_cpu False").use_cpu);
}

}  // namespace zeroth::trainer::hf_flags_test
