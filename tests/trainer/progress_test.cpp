#include "trainer/report/progress.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/trainer/rows.h"

namespace zeroth::trainer::progress_test {
namespace {

// Collects what a Progress writes.
struct Screen {
  std::string text;

  Progress::Output output() {
    return [this](std::string_view more) { text += more; };
  }
  long lines() const { return std::count(text.begin(), text.end(), '\n'); }
  bool has(std::string_view part) const { return text.find(part) != std::string::npos; }
};

}  // namespace

TEST_CASE("the progress line shows loss, rate, norm, speed and time left") {
  CHECK(progress_text(sample_row(12), 200, 185) ==
        "step 12/200 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 2.00K tok/s | 3m05s left");
  CHECK(progress_text(sample_row(200), 200, 0) ==
        "step 200/200 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 2.00K tok/s");
}

TEST_CASE("the share of the matrix peak and the overlap stand in the line once they are known") {
  StepRow row = sample_row(12);
  row.mfu = 0.414;
  row.stats.comm = {.working_s = 0.05, .waiting_s = 0.035, .in_flight_s = 0.34, .collectives = 3};
  CHECK(progress_text(row, 200, 185) ==
        "step 12/200 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 2.00K tok/s | 41% of peak | overlap "
        "75% | 3m05s left");
}

TEST_CASE("a skipped step says so, with the loss scale") {
  StepRow row = sample_row(3);
  row.stats.skipped = true;
  row.stats.skipped_total = 2;
  row.stats.loss_scale = 32768;
  row.stats.grad_norm = INFINITY;
  const std::string text = progress_text(row, 10, 1);
  CHECK(text.find("norm inf | skipped (2 so far), loss scale 32768") != std::string::npos);
}

TEST_CASE("a NaN is shown without a sign") {
  StepRow row = sample_row(3);
  row.stats.loss = -NAN;
  row.stats.grad_norm = -NAN;
  const std::string text = progress_text(row, 10, 1);
  CHECK(text.find("loss nan |") != std::string::npos);
  CHECK(text.find("norm nan |") != std::string::npos);
  Screen screen;
  Progress progress({.total_steps = 10}, screen.output());
  progress.evaluation({.step = 3, .eval_loss = -NAN, .eval_tokens = 5, .since_start_s = 1});
  CHECK(screen.has("loss nan | perplexity nan"));
}

TEST_CASE("plain lines come for the first ten steps, then two seconds apart, and at the end") {
  Screen screen;
  Progress progress({.total_steps = 100}, screen.output());
  for (int step = 1; step <= 10; ++step) progress.step(sample_row(step, 0.5, 0.5 * step));
  CHECK(screen.lines() == 10);
  for (int step = 11; step <= 13; ++step) progress.step(sample_row(step, 0.5, 0.5 * step));
  CHECK(screen.lines() == 10);
  progress.step(sample_row(14, 0.5, 7.0));
  CHECK(screen.lines() == 11);
  progress.step(sample_row(100, 0.5, 7.5));
  CHECK(screen.lines() == 12);
}

TEST_CASE("a narrow line loses whole parts, overlap and peak first, step and time left last") {
  StepRow row = sample_row(1234567);
  row.mfu = 0.414;
  row.stats.comm = {.working_s = 0.05, .waiting_s = 0.035, .in_flight_s = 0.34, .collectives = 3};
  const auto line = [&](size_t width) { return progress_text(row, 2000000, 185, width); };
  const std::string end = " | 3m05s left";
  const std::string all =
      "step 1234567/2000000 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 2.00K tok/s | 41% of peak | "
      "overlap 75%" +
      end;
  CHECK(line(all.size()) == all);
  CHECK(line(all.size() - 1) ==
        "step 1234567/2000000 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 2.00K tok/s | 41% of peak" +
            end);
  CHECK(line(80) == "step 1234567/2000000 | loss 2.5000 | norm 1.25 | 2.00K tok/s" + end);
  CHECK(line(61) == "step 1234567/2000000 | loss 2.5000 | 2.00K tok/s" + end);
  CHECK(line(50) == "step 1234567/2000000 | loss 2.5000" + end);
  CHECK(line(40) == "step 1234567/2000000" + end);
  CHECK(line(30) == "step 1234567/2000000");
  CHECK(line(10) == "step 12345");
  row.stats.skipped = true;
  CHECK(line(82) == "step 1234567/2000000 | loss 2.5000 | skipped (0 so far), loss scale 1" + end);
}

TEST_CASE("on a terminal one line is redrawn, no wider than that") {
  Screen screen;
  {
    Progress progress({.total_steps = 100, .columns = 20}, screen.output());
    for (int step = 1; step <= 3; ++step) progress.step(sample_row(step));
    CHECK(screen.lines() == 0);
    CHECK(screen.text.ends_with("\rstep 3/100\x1b[K"));
    progress.evaluation({.step = 3, .eval_loss = 0, .eval_tokens = 5, .since_start_s = 1});
    CHECK(
        screen.text.ends_with("\r\x1b[Keval at step 3 | loss 0.000000 | perplexity 1.00 | 5 "
                              "tokens\n"));
    progress.step(sample_row(4));
    CHECK(screen.lines() == 1);
  }
  CHECK(screen.text.ends_with("\n"));
}

TEST_CASE("a line shows control bytes of what it tells") {
  Screen screen;
  Progress progress({.total_steps = 10}, screen.output());
  progress.line("model \x1b[2Jx\ny");
  progress.warning("\x9b");
  progress.lines("a\n  b");
  CHECK(screen.text == "model \\u001b[2Jx\\ny\nwarning: \\x9b\na\n  b\n");
}

TEST_CASE("time left follows the recent steps, not the first one") {
  Screen screen;
  Progress progress({.total_steps = 12}, screen.output());
  progress.step(sample_row(1, 60, 60));
  CHECK(screen.has("11m00s left"));
  progress.step(sample_row(2, 1, 61));
  CHECK(screen.has("10s left"));
}

TEST_CASE("steps_per_print adds DeepSpeed's line, with the rate and betas of the next step") {
  using Kind = configs::OptimizerConfig::Kind;
  Screen screen;
  configs::Config config;
  config.steps_per_print = 2;
  Progress progress({.total_steps = 100, .config = config}, screen.output());
  progress.step(sample_row(1));
  CHECK_FALSE(screen.has("skipped="));
  progress.step(sample_row(2));
  CHECK(screen.has("step=2, skipped=0, lr=[4e-05], mom=[(0.9, 0.95)]\n"));
  StepRow last = sample_row(100);
  last.stats.next_lr = 0;
  progress.step(last);
  CHECK(screen.has("step=100, skipped=0, lr=[0.0], mom=[(0.9, 0.95)]\n"));
  config.steps_per_print = 1;
  config.optimizer.kind = Kind::kSgd;
  config.optimizer.momentum = 0.5;
  Progress sgd({.total_steps = 100, .config = config}, screen.output());
  sgd.step(sample_row(3));
  CHECK(screen.has("step=3, skipped=0, lr=[4e-05], mom=[0.5]\n"));
}

TEST_CASE("the breakdown of a step's time goes to plain lines, also on a terminal") {
  Screen screen;
  configs::Config config;
  config.wall_clock_breakdown = true;
  Progress progress({.total_steps = 100, .columns = 80, .config = config}, screen.output());
  progress.step(sample_row(1));
  CHECK(screen.has("| data 0.001 forward 0.200 backward 0.250 reduce 0.030 update 0.004 s\n"));
  StepRow row = sample_row(2);
  row.stats.comm = {.working_s = 0.05, .waiting_s = 0.035, .in_flight_s = 0.34, .collectives = 3};
  progress.step(row);
  CHECK(screen.has(" update 0.004 s = compute 0.400 communication 0.050 waiting 0.035 s\n"));
}

TEST_CASE("the breakdown of memory stands below each plain line") {
  Screen screen;
  configs::Config config;
  config.memory_breakdown = true;
  Progress progress({.total_steps = 100, .columns = 80, .config = config}, screen.output());
  StepRow row = sample_row(1);
  row.stats.memory = {{"after forward", {.host = 3 << 20, .host_peak = 4 << 20}},
                      {"after backward",
                       {.host = 3 << 20,
                        .host_peak = 4 << 20,
                        .device_allocated = 1 << 20,
                        .device_reserved = 8 << 20,
                        .device_peak = 2 << 20}}};
  progress.step(row);
  CHECK(screen.has("\nmemory after forward: host 3.00 MiB (peak 4.00 MiB)\n"));
  CHECK(
      screen.has("\nmemory after backward: host 3.00 MiB (peak 4.00 MiB); device 1.00 MiB (peak "
                 "2.00 MiB), 8.00 MiB reserved\n"));
}

TEST_CASE("log_level leaves out what is less important") {
  using configs::LogLevel;
  const auto lines_at = [](LogLevel level) {
    Screen screen;
    configs::Config config;
    config.steps_per_print = 1;
    config.log_level = level;
    Progress progress({.total_steps = 100, .config = config}, screen.output());
    for (int step = 1; step <= 20; ++step) progress.step(sample_row(step, 0.01, 0.01 * step));
    progress.line("saved");
    progress.evaluation({.step = 3, .eval_loss = 1, .eval_tokens = 5, .since_start_s = 1});
    progress.warning("the disk is full");
    CHECK(screen.has("warning: the disk is full\n") == (level <= LogLevel::kWarning));
    return screen.lines();
  };
  CHECK(lines_at(LogLevel::kDebug) == 20 + 20 + 3);
  CHECK(lines_at(LogLevel::kInfo) == 10 + 20 + 3);
  CHECK(lines_at(LogLevel::kWarning) == 1);
  CHECK(lines_at(LogLevel::kError) == 0);
  CHECK(lines_at(LogLevel::kCritical) == 0);
}

TEST_CASE("debug output splits the time of every step") {
  Screen screen;
  configs::Config config;
  config.log_level = configs::LogLevel::kDebug;
  Progress progress({.total_steps = 100, .columns = 80, .config = config}, screen.output());
  progress.step(sample_row(1));
  CHECK(screen.has("| data 0.001 forward"));
}

TEST_CASE("a run that goes on begins anew with its plain lines and its time left") {
  Screen screen;
  Progress progress({.total_steps = 100}, screen.output());
  progress.resume_from(50);
  for (int step = 51; step <= 60; ++step) {
    progress.step(sample_row(step, step == 51 ? 60 : 1, 1000 + 0.1 * step));
  }
  CHECK(screen.lines() == 10);
  CHECK(screen.has("step 52/100 | loss 2.5000 | lr 5.00e-05 | norm 1.25 | 1.00K tok/s | 48s left"));
  progress.step(sample_row(61, 1, 1006.1));
  CHECK(screen.lines() == 10);
}

}  // namespace zeroth::trainer::progress_test
