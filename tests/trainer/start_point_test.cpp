// What a later round of a run makes of its output, up to real processes that are killed or stopped.
#include "trainer/start_point.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::start_point_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "0123456789abcdef";
constexpr const char* kTrain =
    "--model model --seq-len 16 --data train.bin --lr 1e-2 --lr_scheduler_type linear --steps 12 ";
constexpr const char* kEndless = "--model model --seq-len 16 --data train.bin --lr 1e-2 ";

RestartAttempt round_of(int64_t number, const std::string& run, bool goes_on) {
  RestartAttempt round;
  round.index = number;
  round.run = run;
  round.is_tracked = true;
  round.resumes = goes_on;
  return round;
}

StartPoint start_in(const fs::path& output, RestartAttempt round) {
  Flags flags;
  flags.output = output.string();
  return resolve_start_point(std::move(flags), std::move(round));
}

// `zeroth` with a round's variables. Its rank 0 is killed behind the row of the step `last`; 0: it
// is not.
std::string round_of(int number, int ranks, const std::string& arguments, int64_t last = 0) {
  const std::string command = fmt::format(
      "ZEROTH_RUN={} ZEROTH_ROUND={} ZEROTH_ROUND_CAUSE='rank 1 was <killed>' DS_ACCELERATOR=cpu "
      "CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 '{}/zeroth' --num_gpus {} finetune {} {}",
      kRun, number, ZEROTH_BIN_DIR, ranks, kTrain, arguments);
  if (last == 0) return command + "\n";
  return fmt::format("{} {} > said 2>&1; [ $? = {} ] || exit 99\n",
                     signalled_behind(row_of_step(last), SIGKILL), command, 128 + SIGKILL);
}

std::vector<int64_t> of_rows(const Workbench::Rows& rows, const char* key) {
  std::vector<int64_t> values;
  for (const auto& row : rows) values.push_back(row[key].is_null() ? -1 : row[key].get<int64_t>());
  return values;
}

using Numbers = std::vector<int64_t>;

void check_same_losses(const Workbench& bench, const char* file) {
  const auto whole = losses(bench.steps("whole.jsonl")), seen = losses(bench.steps(file));
  CHECK(of_rows(bench.steps(file), "step") == Numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  REQUIRE(seen.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(seen[i] == doctest::Approx(whole[i]).epsilon(2e-5));
  }
}

}  // namespace

TEST_CASE("folders on the way are told by their name") {
  CHECK(is_step_directory("step-10"));
  CHECK(is_step_directory("checkpoint-500"));
  for (const char* other : {"step-", "checkpoint-", "step-1a", "my-step-10", "checkpoint", "10"}) {
    CAPTURE(other);
    CHECK_FALSE(is_step_directory(other));
  }
}

TEST_CASE("a later round keeps the batch by the record, which counts only for its own run") {
  const TempFolder directory;
  const AttemptRecord record{
      .run = kRun, .batch = 12, .micro_batch = 6, .rounds = {{.round = 1}}, .step = 3};
  const auto begun = [&](RestartAttempt round) {
    const AttemptFile file(directory.path(), record);
    return start_in(directory.path(), std::move(round));
  };
  const StartPoint first = begun(round_of(0, kRun, false));
  CHECK_FALSE(first.previous_attempts);
  CHECK_FALSE(first.flags.resume.is_on());
  const StartPoint later = begun(round_of(2, kRun, true));
  REQUIRE(later.previous_attempts);
  CHECK(later.flags.values.previous_batch == 12);
  CHECK(later.flags.values.previous_micro_batch == 6);
  CHECK(later.flags.resume.from == ResumeFlags::From::kNewestOrNothing);
  CHECK_FALSE(later.resume_plan);
  // An agent of torchrun came: no rank was told of a restart.
  CHECK(begun(round_of(2, kRun, false)).attempt.resumes);
  const StartPoint strange = begun(round_of(2, "fedcba9876543210", true));
  CHECK_FALSE(strange.previous_attempts);
  CHECK_FALSE(strange.attempt.resumes);
  CHECK_FALSE(strange.flags.resume.is_on());
  AttemptRecord newer = record;
  newer.rounds.back().round = 2;
  const AttemptFile file(directory.path(), newer);
  CHECK(message_of<Error>([&] {
          start_in(directory.path(), round_of(1, kRun, true));
        }).ends_with("belongs to round 2 of this run: round 1 is over"));
  directory.write(kAttemptFile, "{");
  const StartPoint damaged = start_in(directory.path(), round_of(1, kRun, true));
  CHECK(damaged.notes.size() == 1);
  CHECK_FALSE(damaged.previous_attempts);
}

TEST_CASE("a later round writes over no output that the first one was refused") {
  const Workbench bench;
  fs::create_directory(bench / "full");
  bench.write("full/model.safetensors", "somebody's");
  const auto result = bench.shell(fmt::format(
      "ZEROTH_RUN={} ZEROTH_ROUND=1 DS_ACCELERATOR=cpu \"$FINETUNE\" {} --micro-batch 6 "
      "--output full",
      kRun, kTrain));
  CHECK(result.code == 1);
  CHECK(has(result.err, "full is not empty"));
  CHECK(bench.read("full/model.safetensors") == "somebody's");
}

TEST_CASE("a run whose ranks die twice goes on by itself with the losses of one that is whole") {
  const Workbench bench;
  bench.write("ds.json", R"({"train_micro_batch_size_per_gpu": 6, "csv_monitor": {
    "enabled": true, "output_path": "logs", "job_name": "job"}})");
  const auto whole =
      bench.zeroth(2, std::string(kTrain) + "--micro-batch 6 --output whole --metrics whole.jsonl");
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const std::string run =
      "--deepspeed ds.json --save-every 4 --save-sync --output out --metrics m.jsonl ";
  // Before the first checkpoint; behind it; on other ranks each, whose batch would be another one.
  const auto result =
      bench.shell(round_of(0, 2, run, /*last=*/3) + round_of(1, 1, run + "--resume", /*last=*/7) +
                  round_of(2, 3, run));
  CHECK_MESSAGE(result.code == 0, result.out << result.err << bench.read("said"));
  check_same_losses(bench, "m.jsonl");
  CHECK(has(result.out, "this round keeps the run's global batch of 12: on 3 ranks it would"));
  const auto rounds = bench.rows("m.jsonl", "round");
  CHECK(of_rows(rounds, "round") == Numbers{0, 1, 2});
  CHECK(of_rows(rounds, "ranks") == Numbers{2, 1, 3});
  CHECK(of_rows(rounds, "step").at(1) == 0);
  CHECK(of_rows(rounds, "step").at(2) == 4);
  CHECK(of_rows(rounds, "steps_lost").at(1) == 2);  // it is noted behind a step's row
  CHECK(rounds.at(2)["cause"] == "rank 1 was <killed>");
  std::string rows = bench.read("logs/job/Train_Samples_lr.csv");
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 13);
  const std::string page = bench.read("out/train_log.html");
  CHECK(has(page, R"("cause":"rank 1 was \u003ckilled>")"));
  CHECK(has(result.out, "round      2 after step "));
}

TEST_CASE("checkpoints that an earlier run has left in an output are not those of a round before") {
  const Workbench bench;
  REQUIRE(bench
              .zeroth(2, std::string(kTrain) +
                             "--micro-batch 6 --save-every 6 --output out --metrics whole.jsonl")
              .code == 0);
  const std::string run = "--micro-batch 6 --save-every 100 --output out --metrics m.jsonl ";
  const auto anew = bench.shell(round_of(0, 2, run + "--overwrite", /*last=*/2) +
                                round_of(1, 2, run + "--overwrite"));
  CHECK_MESSAGE(anew.code == 0, anew.out << anew.err);
  check_same_losses(bench, "m.jsonl");
  CHECK_FALSE(has(anew.out, "resumes from "));
  // With --resume DIR: DIR, until there is one of this run's own.
  const std::string named =
      "--micro-batch 6 --output o2 --metrics n.jsonl --resume out/checkpoints ";
  fs::remove_all(bench / "out/checkpoints/step-12");
  const auto from = bench.shell(round_of(0, 2, named + "--save-every 100", /*last=*/8) +
                                round_of(1, 2, named + "--save-every 2"));
  CHECK_MESSAGE(from.code == 0, from.out << from.err);
  CHECK_MESSAGE(has(from.out, "out/checkpoints/step-6 after step 6"), from.out);
}

TEST_CASE("a round whose process is stopped gives way to the next, and ends when it wakes up") {
  const Workbench bench;
  const std::string run = "--micro-batch 6 --save-every 4 --output out --metrics m.jsonl ";
  const std::string one = fmt::format("ZEROTH_RUN={} DS_ACCELERATOR=cpu ", kRun);
  // Stopped where it has nothing in hand that it has asked for: between that question and the call
  // that follows nothing is guarded. The checkpoint of step 8 may be on its way.
  const auto result = bench.shell(fmt::format(
      "{3} {0} ZEROTH_ROUND=0 \"$FINETUNE\" {1} {2} --steps 100000 > said 2>&1 & pid=$!\n"
      "until grep -q '^State:.T' /proc/$pid/status || ! kill -0 $pid; do sleep 0.01; done\n"
      "\"$FINETUNE\" {1} {2} --steps 9 --overwrite 2> stranger; echo stranger $?\n"
      "steps=$(($(ls out/checkpoints | grep -o '^step-[0-9]*$' | cut -c6- | sort -n | tail -1) + "
      "3))\n"
      "{0} ZEROTH_ROUND=1 \"$FINETUNE\" {1} {2} --steps $steps; echo next $?\n"
      // A save that was under way may take its own half of a folder away.
      "sums() {{ find out m.jsonl -type f -not -path '*/.tmp-*' | sort | xargs cksum; }}\n"
      "sums > before; kill -CONT $pid; wait $pid; echo old $?\n"
      "sums | diff before - && echo nothing was written",
      one, kEndless, run, signalled_behind(row_of_step(10), SIGSTOP)));
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(has(result.out, "stranger 1\n"));
  CHECK(has(bench.read("stranger"), "out is the output of a run that is still active (process "));
  CHECK(has(result.out, "next 0\n"));
  CHECK(has(result.out, "old 1\n"));
  CHECK(has(result.out, "nothing was written\n"));
  const std::string said = bench.read("said");
  CHECK_MESSAGE(has(said, "out was taken over by "), said);
  CHECK_FALSE(fs::exists(bench / "out.zeroth-lock"));
}

// What it asks of the agents' store is in tests/comm/agree_on_attempt_test.cpp, without Python.
TEST_CASE("under torchrun a run outlives the loss of a rank, and then that of an agent") {
  const Workbench bench;
  if (bench.shell("command -v torchrun").code != 0) {
    MESSAGE("skipped: there is no torchrun in PATH");
    return;
  }
  const std::string train = "--model model --seq-len 16 --data train.bin --lr 1e-3 --steps 600 ";
  REQUIRE(bench.zeroth(2, train + "--micro-batch 6 --metrics whole.jsonl").code == 0);
  const auto result = bench.shell(
      fmt::format(
          "export DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1\n"
          "agent() {{ exec torchrun --no-python --nnodes 1:2 --nproc-per-node 1 --max-restarts 3 "
          "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{} --rdzv-id run --rdzv-conf "
          "last_call_timeout=4,keep_alive_interval=1,is_host=$1 \"$FINETUNE\" {} --micro-batch 6 "
          "--save-every 20 --save-sync --resume auto --output out --metrics m.jsonl; }}\n"
          "agent 1 > a 2>&1 & a=$!; sleep 1; agent 0 > b 2>&1 & b=$!\n"
          "upto() {{ until grep -q \"\\\"step\\\":$1,\\\"loss\" m.jsonl 2> /dev/null || ! kill -0 "
          "$a; "
          "do sleep 0.05; done; }}\n"
          "begun() {{ until [ $(grep -c '\"round\"' m.jsonl) -ge $1 ] || ! kill -0 $a; do sleep "
          "0.05; "
          "done; }}\n"
          "upto 30; kill -9 $(cat /proc/$b/task/*/children); begun 2; upto 200\n"
          "kill -9 $b $(cat /proc/$b/task/*/children); wait $a",
          free_port(), train),
      std::chrono::minutes(5));
  CHECK_MESSAGE(result.code == 0, bench.read("a"));
  CHECK(of_rows(bench.rows("m.jsonl", "round"), "ranks") == Numbers{2, 2, 1});
  const auto whole = losses(bench.steps("whole.jsonl")), seen = losses(bench.steps("m.jsonl"));
  REQUIRE(seen.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(seen[i] == doctest::Approx(whole[i]).epsilon(1e-3));
  }
}

}  // namespace zeroth::trainer::start_point_test
