#include "trainer/report/phase_progress.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace zeroth::trainer::phase_progress_test {
namespace {

// What is written while a clock stands where the test puts it.
struct Shown {
  explicit Shown(ProgressOptions options = {}) : progress(options, output()) {}

  Progress::Output output() {
    return [this](std::string_view more) { text += more; };
  }
  PhaseProgress::Clock clock() {
    return [this] { return now; };
  }
  // What was written since the last call.
  std::string take() { return std::exchange(text, ""); }

  double now = 1000;
  std::string text;
  Progress progress;
  PhaseProgress phases{progress, clock()};
};

ProgressPhase evaluation() {
  return {.name = "evaluation at step 3", .total = 2000, .counts = "{} of {} samples"};
}

}  // namespace

TEST_CASE("a phase tells what is done and how long the rest will take") {
  CHECK(phase_text(evaluation(), 480, 40) ==
        "evaluation at step 3: 480 of 2000 samples, 2m07s left");
  CHECK(phase_text({.name = "reading weights", .total = 1000}, 430, 43) ==
        "reading weights: 43 %, 57s left");
  CHECK(phase_text({.name = "step 3", .total = 1000, .counts = "micro-batch {} of {}", .first = 1},
                   119, 61) == "step 3: micro-batch 120 of 1000, 7m32s left");
}

TEST_CASE("a phase of which nothing is done, or of unknown size, tells how long it has taken") {
  CHECK(phase_text(evaluation(), 0, 12) == "evaluation at step 3: 0 of 2000 samples, 12s so far");
  CHECK(phase_text({.name = "saving out"}, 0, 20) == "saving out: 20s so far");
  CHECK(phase_text({.name = "reading weights", .total = 1000}, 0, 20) ==
        "reading weights: 0 %, 20s so far");
}

TEST_CASE("a phase that is over within ten seconds leaves no trace") {
  Shown shown;
  auto phase = shown.phases.begin(evaluation());
  for (int second = 0; second < 10; ++second) {
    shown.now += 0.99;
    shown.phases.advance(200 * second);
    shown.phases.tick();
  }
  phase.finish();
  shown.now += 100;
  shown.phases.tick();
  CHECK(shown.take().empty());
}

TEST_CASE("a long phase is told after ten seconds, then more and more rarely, and its time") {
  Shown shown;
  auto phase = shown.phases.begin({.name = "reading weights"});
  std::vector<int> reported;
  for (int second = 1; second <= 900; ++second) {
    shown.now += 1;
    shown.phases.advance(second, 900);
    if (!shown.take().empty()) reported.push_back(second);
  }
  CHECK(reported.front() == 10);
  CHECK(reported[1] == 20);
  CHECK(reported.size() < 30);
  for (size_t i = 1; i < reported.size(); ++i) CHECK(reported[i] - reported[i - 1] <= 60);
  phase.finish();
  CHECK(shown.take() == "reading weights: done in 15m00s\n");
}

TEST_CASE("what a phase is at is shown while nobody calls, and nothing where it was left") {
  Shown shown;
  {
    const auto phase = shown.phases.begin(evaluation());
    shown.now += 12;
    shown.phases.tick();
    CHECK(shown.take() == "evaluation at step 3: 0 of 2000 samples, 12s so far\n");
  }
  shown.now += 100;
  shown.phases.tick();
  shown.phases.advance(500);
  CHECK(shown.take().empty());
}

TEST_CASE("on a terminal a long phase is one line that is redrawn, cut to its width") {
  Shown shown({.columns = 30});
  auto phase = shown.phases.begin(evaluation());
  shown.now += 10;
  shown.phases.advance(480);
  CHECK(shown.take() ==
        "\r" + std::string("evaluation at step 3: 480 of 2000").substr(0, 30) + "\x1b[K");
  shown.now += 0.5;
  shown.phases.advance(490);
  CHECK(shown.take().empty());
  shown.now += 0.5;
  shown.phases.advance(500);
  CHECK_FALSE(shown.take().empty());
  phase.finish();
  CHECK(shown.take() == "\r\x1b[Kevaluation at step 3: done in 11s\n");
}

TEST_CASE("a phase is told from the second on that it asks for") {
  Shown shown;
  const auto phase = shown.phases.begin({.name = "step 3",
                                         .total = 1000,
                                         .counts = "micro-batch {} of {}",
                                         .first = 1,
                                         .shown_after_s = 60});
  shown.now += 59;
  shown.phases.advance(110);
  CHECK(shown.take().empty());
  shown.now += 1;
  shown.phases.advance(119);
  CHECK(shown.take() == "step 3: micro-batch 120 of 1000, 7m24s left\n");
}

TEST_CASE("a name may hold anything, and a level that hides notes hides phases") {
  Shown shown;
  const auto phase = shown.phases.begin({.name = "reading a\x1b[2J\nb"});
  shown.now += 10;
  shown.phases.tick();
  const std::string text = shown.take();
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\n') == text.size() - 1);
  configs::Config warnings_only;
  warnings_only.log_level = configs::LogLevel::kWarning;
  Shown quiet({.config = warnings_only});
  auto hidden = quiet.phases.begin(evaluation());
  quiet.now += 100;
  quiet.phases.tick();
  hidden.finish();
  CHECK(quiet.take().empty());
}

TEST_CASE("a thread shows what is due by itself, and ends with the phases") {
  std::mutex mutex;
  std::condition_variable written;
  std::string text;
  Progress progress({}, [&](std::string_view more) {
    const std::lock_guard lock(mutex);
    text += more;
    written.notify_all();
  });
  PhaseProgress phases(progress, [] { return 0.0; });
  phases.start_ticking();
  const auto phase = phases.begin({.name = "saving out", .shown_after_s = 0});
  std::unique_lock lock(mutex);
  written.wait(lock, [&] { return !text.empty(); });
  CHECK(text.starts_with("saving out: "));
}

}  // namespace zeroth::trainer::phase_progress_test
