// What a run is doing while it has nothing else to report: it reads data or weights, evaluates,
// saves, runs a long step. A phase that is over soon leaves no trace.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "trainer/report/progress.h"

namespace zeroth::trainer {

struct ProgressPhase {
  std::string name;           // "evaluation at step 3"
  int64_t total = 0;          // units of its work; 0: not known, or not yet
  std::string counts = {};    // "{} of {} samples": how done and total are shown; empty: per cent
  int64_t first = 0;          // what is shown when nothing is done: 1 for the micro-batch at hand
  double shown_after_s = 10;  // not before
};

// "evaluation at step 3: 480 of 2000 samples, 1m20s left", "reading weights: 43 %, 25s left",
// "saving out: 20s so far"
std::string phase_text(const ProgressPhase& phase, int64_t done, double elapsed_s);

class PhaseProgress {
 public:
  using Clock = std::function<double()>;  // seconds, never backwards

  // Shows phases through `progress`, which must outlive it: on a terminal as the line that is
  // redrawn, elsewhere as lines at a distance that grows from ten seconds to a minute.
  PhaseProgress(Progress& progress, Clock clock);
  PhaseProgress(const PhaseProgress&) = delete;
  PhaseProgress& operator=(const PhaseProgress&) = delete;

  // From now on a thread shows what is due, also while no function is called.
  void start_ticking();

  // A phase lasts as long as its scope.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(PhaseProgress* progress) : progress_(progress) {}
    Scope(Scope&& other) noexcept : progress_(std::exchange(other.progress_, nullptr)) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (progress_ != nullptr) progress_->end();
    }
    // Ends the phase, and shows how long it lasted if it was shown before.
    void finish() {
      if (progress_ != nullptr) progress_->finish();
    }

   private:
    PhaseProgress* progress_;
  };
  // Ends the one before, if that has not ended.
  Scope begin(ProgressPhase phase);
  // Of the present phase; without one nothing happens. From the thread that began it. `total`:
  // where it was not known before.
  void advance(int64_t done, std::optional<int64_t> total = std::nullopt);
  // Shows what is due. From any thread.
  void tick();

 private:
  struct Current {
    ProgressPhase phase;
    double begin_s = 0;
    double next_s = 0;  // when it is due
    int64_t done = 0;
    bool shown = false;
  };

  void show_due();
  void finish();
  void end();

  Progress& progress_;
  Clock clock_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::optional<Current> current_;
  std::jthread ticker_;  // is joined before the rest goes
};

}  // namespace zeroth::trainer
