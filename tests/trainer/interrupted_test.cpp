// Real processes: SIGTERM, SIGINT and SIGHUP, to one rank or all, and memory that is not there.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "model/hf/safetensors.h"
#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"
#include "trainer/start_point.h"

namespace zeroth::trainer::interrupted_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndless =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --steps 1000000 "
    "--metrics m.jsonl ";
// In a shell's background SIGINT is ignored, and under nohup SIGHUP.
constexpr const char* kDefault = "env --default-signal=INT,TERM,HUP";
constexpr const char* kUntilTraining =
    "until grep -q grad_norm m.jsonl 2> /dev/null || ! kill -0 $!; do sleep 0.02; done\n";

// `works PID N`: waits until that process has taken N hundredths of a second more of a processor.
// `told PID SIGNAL`: sends it, waits until the process has taken it, and then for so long that the
// same one once more is a second one.
constexpr const char* kWorks =
    "ticks() { cut -d ' ' -f 14 /proc/$1/stat; }\n"
    "works() { t=$(($(ticks $1) + $2)); "
    "while kill -0 $1 && [ $(ticks $1) -lt $t ]; do sleep 0.02; done; }\n"
    "told() { kill -$2 $1; "
    "while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$1/status; do sleep 0.02; done; sleep 1; }\n";

// A minute and more, in small micro-batches.
constexpr const char* kLongEvaluation = "--eval-data long.bin --eval-micro-batch 1";

void write_long_evaluation(const Workbench& bench) {
  std::string text;
  while (text.size() < 8'000'000) text += bench.read("train.bin");
  bench.write("long.bin", text);
}

// Commands that start two ranks of one run, processes $r0 and $r1, each with these arguments. What
// they print goes to the shell's output, or `apart` to said0 and said1.
std::string two_ranks(const std::string& arguments, bool apart = true) {
  std::string commands =
      fmt::format("{}export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n",
                  kWorks, free_port());
  for (const int rank : {0, 1}) {
    commands += fmt::format("RANK={0} LOCAL_RANK={0} {1} \"$FINETUNE\" {2}{3} & r{0}=$!\n", rank,
                            kDefault, arguments, apart ? fmt::format(" > said{}", rank) : "");
  }
  return commands;
}

// Run, signalled while it trains; the last line of its output is the code.
Workbench::Result signalled(const Workbench& bench, const std::string& start,
                            const std::string& kill) {
  auto result =
      bench.shell(fmt::format("{} & pid=$!\n{}{}\nwait $pid", start, kUntilTraining, kill));
  return result;
}

void check_saved(const Workbench& bench, const Workbench::Result& result, const char* signal) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(has(result.out, fmt::format("interrupted by {} after step ", signal)));
  CHECK(has(result.out, "saved out in "));
  CHECK(model::SafetensorsDirectory(bench / "out").entries().size() > 10);
  const auto rows = bench.rows("m.jsonl", "interrupted");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["interrupted"] == signal);
  CHECK(rows[0]["step"] == bench.steps("m.jsonl").back()["step"]);
}

}  // namespace

TEST_CASE("a signal to the launcher ends both ranks with the model saved once") {
  for (const auto& [signal, code] : {std::pair{"TERM", 143}, std::pair{"HUP", 129}}) {
    const Workbench bench;
    const auto result =
        signalled(bench,
                  fmt::format("{} '{}/zeroth' --num_gpus 2 finetune {} --output out", kDefault,
                              ZEROTH_BIN_DIR, kEndless),
                  fmt::format("kill -{} $pid", signal));
    CHECK(result.code == code);
    check_saved(bench, result, (std::string("SIG") + signal).c_str());
  }
}

TEST_CASE(
    "SIGTERM or SIGINT to one rank alone ends all of them after their step, with the model saved") {
  struct Case {
    int hit;
    const char* signal;
    int code;
  };
  for (const auto& [hit, signal, code] : {Case{0, "INT", 130}, Case{1, "TERM", 143}}) {
    const Workbench bench;
    const auto result = bench.shell(
        two_ranks(std::string(kEndless) + " --output out", /*apart=*/false) + kUntilTraining +
        fmt::format("kill -{} $r{}; wait $r0; a=$?; wait $r1; echo codes $a $?", signal, hit));
    CHECK(has(result.out, fmt::format("codes {0} {0}", code)));
    check_saved(bench, result, (std::string("SIG") + signal).c_str());
  }
}

TEST_CASE(
    "the model is saved before the last evaluation, which a signal to one rank alone leaves") {
  for (const int stage : {2, 3}) {
    const Workbench bench;
    write_long_evaluation(bench);
    bench.write("ds.json", fmt::format(R"({{"zero_optimization": {{"stage": {}}}}})", stage));
    const auto result = bench.shell(
        two_ranks(fmt::format("--model model --data train.bin --seq-len 16 --global-batch 4 "
                              "--micro-batch 2 --steps 2 --metrics m.jsonl --deepspeed ds.json {} "
                              "--output out",
                              kLongEvaluation)) +
        "until grep -q 'saved out' said0 || ! kill -0 $!; do sleep 0.02; done\n"
        "sleep 0.3; kill -TERM $r1; wait $r0; a=$?; wait $r1; echo codes $a $?");
    CAPTURE(result.err);
    CHECK(has(result.out, "codes 143 143"));
    CHECK(has(bench.read("said0"), "interrupted by SIGTERM after step 2/2; the model is saved"));
    CHECK(model::SafetensorsDirectory(bench / "out").entries().size() > 10);
    CHECK(bench.evaluations("m.jsonl").empty());
    CHECK(bench.rows("m.jsonl", "interrupted").size() == 1);
  }
}

TEST_CASE(
    "kill -9 in the last evaluation leaves the new model, and the next run clears the former") {
  const Workbench bench;
  write_long_evaluation(bench);
  const std::string train =
      "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --steps 2 "
      "--output out ";
  const auto first = bench.finetune(train);
  REQUIRE_MESSAGE(first.code == 0, first.out << first.err);
  const std::string former = bench.read("out/model.safetensors");
  bench.shell(
      fmt::format("\"$FINETUNE\" {} --lr 0.1 --overwrite {} > said & pid=$!\n"
                  "until grep -q 'saved out' said || ! kill -0 $pid; do sleep 0.02; done\n"
                  "kill -9 $pid; ls -d out.zeroth-tmp-* > beside; wait $pid; true",
                  train, kLongEvaluation));
  CHECK(has(bench.read("beside"), "out.zeroth-tmp-"));
  CHECK_FALSE((bench.read("out/model.safetensors") == former));
  CHECK(model::SafetensorsDirectory(bench / "out").entries().size() > 10);
  CHECK(bench.finetune(train + "--overwrite").code == 0);
  CHECK(has(bench.shell("ls").out, "out"));
  CHECK_FALSE(has(bench.shell("ls").out, ".zeroth-"));
}

TEST_CASE("a signal leaves an evaluation on the way, and the model is saved") {
  const Workbench bench;
  write_long_evaluation(bench);
  const auto result = signalled(
      bench,
      fmt::format("{} '{}/zeroth' --num_gpus 2 finetune {} {} --eval-every 1 --output out",
                  kDefault, ZEROTH_BIN_DIR, kEndless, kLongEvaluation),
      "sleep 0.5; kill -INT $pid");
  CHECK(result.code == 130);
  check_saved(bench, result, "SIGINT");
  CHECK(bench.evaluations("m.jsonl").empty());
}

TEST_CASE("a run that goes on makes up for the evaluation that a signal left out") {
  const Workbench bench;
  write_long_evaluation(bench);
  const std::string train =
      "--model model --data train.bin --seq-len 16 --global-batch 4 --steps 4 --eval-every 2 "
      "--eval-data long.bin --max-eval-samples 6000 --save-every 4 --load_best_model_at_end True ";
  REQUIRE(bench.finetune(train + "--metrics whole.jsonl --output whole").code == 0);
  const auto result = bench.finetune(train + "--metrics m.jsonl --output out",
                                     signalled_behind(row_of_step(2), SIGTERM));
  REQUIRE_MESSAGE(result.code == 143, result.out << result.err);
  REQUIRE(bench.evaluations("m.jsonl").empty());
  const auto again = bench.finetune(train + "--metrics m.jsonl --output out --resume");
  REQUIRE_MESSAGE(again.code == 0, again.err);
  const auto found = bench.evaluations("m.jsonl"), whole = bench.evaluations("whole.jsonl");
  REQUIRE(found.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(found[i]["eval_loss"] == whole[i]["eval_loss"]);
}

TEST_CASE("a signal to one rank alone leaves an evaluation that is all that a run does") {
  const Workbench bench;
  write_long_evaluation(bench);
  const auto result = bench.shell(
      two_ranks(fmt::format("--model model --seq-len 16 --eval-only --metrics m.jsonl {}",
                            kLongEvaluation)) +
      "until grep -q 'model  ' said0 || ! kill -0 $!; do sleep 0.02; done\n"
      "works $r1 50; kill -TERM $r1; wait $r0; a=$?; wait $r1; echo codes $a $?");
  CAPTURE(result.err);
  CHECK(has(result.out, "codes 143 143"));
  const std::string said = bench.read("said0");
  CHECK_MESSAGE(has(said, "interrupted by SIGTERM before the end\n"), said);
  CHECK(bench.evaluations("m.jsonl").empty());
  CHECK(bench.rows("m.jsonl", "interrupted").size() == 1);
}

TEST_CASE("a signal to one rank while weights are read ends all of them, and nothing is saved") {
  const Workbench bench;
  bench.write("model/config.json", R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 448,
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
    "torch_dtype": "float32"})");
  const auto result =
      bench.shell(two_ranks(std::string(kEndless) + " --output out") +
                  "until grep -q 'loss  ' said0 || ! kill -0 $!; do sleep 0.02; done\n"
                  "works $r1 10; kill -TERM $r1; wait $r0; a=$?; wait $r1; echo codes $a $?");
  CAPTURE(result.err);
  CHECK(has(result.out, "codes 143 143"));
  CHECK(has(bench.read("said0"), "interrupted by SIGTERM before the first step; nothing is saved"));
  CHECK_FALSE(fs::exists(bench / "out"));
}

TEST_CASE("a second signal to one rank alone ends the others too, and the newest model stays") {
  const Workbench bench;
  // Its ranks need each other for every block: one that is gone is missed at once.
  bench.write("ds.json", R"({"zero_optimization": {"stage": 3}})");
  fs::create_directory(bench / "out");
  bench.write("out/model.safetensors", "of before");
  const auto result = bench.shell(
      two_ranks("--model model --data train.bin --seq-len 16 --micro-batch 16 --accumulation 5000 "
                "--steps 2 --overwrite --deepspeed ds.json --output out --timeout 60") +
          "until grep -q 'loss  ' said0 || ! kill -0 $!; do sleep 0.02; done\n"
          "works $r1 50; told $r1 INT; kill -0 $r1 && echo still there; kill -INT $r1\n"
          "wait $r1; a=$?; wait $r0; echo codes $a $?",
      std::chrono::seconds(110));
  CHECK(has(result.out, "still there"));
  CHECK(has(result.out, "codes 130 1"));
  CHECK_MESSAGE(has(result.err, "rank 0: error: "), result.err);
  CHECK(bench.read("out/model.safetensors") == "of before");
}

TEST_CASE("without --output an interrupted run says that nothing is saved") {
  const Workbench bench;
  const auto result =
      signalled(bench, fmt::format("{} \"$FINETUNE\" {}", kDefault, kEndless), "kill -TERM $pid");
  CHECK(result.code == 143);
  CHECK(has(result.out, "; without --output nothing is saved"));
}

TEST_CASE("a second signal ends a run at once") {
  const Workbench bench;
  // A step that takes minutes: the first signal waits for its end.
  const auto result = bench.shell(
      fmt::format("{}{} \"$FINETUNE\" --model model --data train.bin --seq-len 16 --micro-batch 16 "
                  "--accumulation 100000 --steps 2 --output out > started & pid=$!\n"
                  "until grep -q 'loss  ' started || ! kill -0 $pid; do sleep 0.02; done\n"
                  "works $pid 50; told $pid TERM; kill -0 $pid && echo still there\n"
                  "kill -TERM $pid; wait $pid",
                  kWorks, kDefault));
  CHECK(result.code == 143);
  CHECK(has(result.out, "still there"));
  CHECK_FALSE(fs::exists(bench / "out/config.json"));
}

TEST_CASE("a second signal to the launcher ends both ranks at once, and the newest model stays") {
  const Workbench bench;
  fs::create_directory(bench / "out");
  bench.write("out/model.safetensors", "of before");
  const auto result = bench.shell(fmt::format(
      "{}{} '{}/zeroth' --num_gpus 2 finetune --model model --data train.bin --seq-len 16 "
      "--micro-batch 16 --accumulation 100000 --steps 2 --overwrite --output out > started & "
      "pid=$!\n"
      "until grep -q 'loss  ' started || ! kill -0 $pid; do sleep 0.02; done\n"
      "all=$(cat /proc/$pid/task/*/children)\n"
      "for one in $all; do grep -q finetune /proc/$one/comm && works $one 50; done\n"
      "told $pid TERM; kill -0 $pid && echo still there; kill -TERM $pid; wait $pid\n"
      "code=$?; for one in $all; do kill -0 $one 2> /dev/null && echo $one outlived it; done\n"
      "exit $code",
      kWorks, kDefault, ZEROTH_BIN_DIR));
  CAPTURE(result.err);
  CHECK(result.code == 143);
  CHECK(has(result.out, "still there"));
  CHECK_FALSE(has(result.out, "outlived it"));
  CHECK(bench.read("out/model.safetensors") == "of before");
}

TEST_CASE(
    "a second signal while a model is saved leaves whole models only, the newest among them") {
  const Workbench bench;
  // Stopped until it has been met while it writes; then both signals wait for it.
  const auto result = bench.shell(fmt::format(
      "{} \"$FINETUNE\" {} --save-every 1 --output out > said & pid=$!\n"
      "until [ $(ls out/checkpoints 2>&1 | grep -c '^step-[0-9]*$') -ge 2 ] || ! kill -0 $pid; do "
      "sleep 0.02; done\n"
      "while kill -0 $pid; do\n"
      "  kill -STOP $pid; until grep -q '^State:.T' /proc/$pid/status; do :; done\n"
      "  ls -a out/checkpoints | grep '^.tmp-step' > met && break\n"
      "  kill -CONT $pid; sleep 0.01\n"
      "done\n"
      "kill -INT $pid; kill -TERM $pid; kill -CONT $pid; wait $pid",
      kDefault, kEndless));
  CAPTURE(result.err);
  CHECK(result.code == 143);
  const std::string met = bench.read("met");
  CAPTURE(met);
  REQUIRE(met.starts_with(".tmp-step-"));
  std::set<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(bench / "out/checkpoints")) {
    const std::string name = entry.path().filename();
    if (!is_step_directory(name)) continue;
    CHECK(model::SafetensorsDirectory(entry.path()).entries().size() > 10);
    CHECK(fs::exists(entry.path() / "tokenizer.json"));
    steps.insert(std::stoll(name.substr(5)));
  }
  CHECK(steps.size() >= 2);
  CHECK(steps.contains(std::stoll(met.substr(10)) - 1));
  CHECK_FALSE(fs::exists(bench / "out/model.safetensors"));
}

TEST_CASE("a signal to a run whose last loss is not finite promises no model") {
  const Workbench bench;
  bench.write("ds.json", R"({"scheduler": {"type": "LRRangeTest", "params": {
    "lr_range_test_min_lr": 1e17, "lr_range_test_step_size": 1000000,
    "lr_range_test_step_rate": 1}}})");
  // Steps long enough to be met by a signal before there are ten of them.
  const auto result = bench.shell(fmt::format(
      "{} \"$FINETUNE\" --model model --data train.bin --seq-len 16 --micro-batch 2 "
      "--accumulation 300 --steps 20 --metrics m.jsonl --deepspeed ds.json --output out "
      "& pid=$!\n"
      "until grep -q 'skipped\": *true' m.jsonl 2> /dev/null || ! kill -0 $pid; do "
      "sleep 0.02; done\n"
      "kill -TERM $pid; wait $pid",
      kDefault));
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(has(result.out, "interrupted by SIGTERM after step "));
  CHECK(has(result.out, "/20; nothing is saved\n"));
  CHECK_FALSE(has(result.out, "; saving"));
  CHECK(has(result.err, " is nan and gradients are not finite since step "));
  CHECK(has(result.err, ": no model is saved"));
  CHECK_FALSE(fs::exists(bench / "out/model.safetensors"));
}

}  // namespace zeroth::trainer::interrupted_test
