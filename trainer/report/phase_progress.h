// Progress of a phase in which a run has nothing else to report: reading data or weights, an
// evaluation, a save, a long step. A phase that ends soon leaves no trace.
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
  int64_t total = 0;          // units of its work; 0: unknown, or not yet known
  std::string counts = {};    // format of done and total: "{} of {} samples"; empty: percent
  int64_t first = 0;          // added to the shown count: 1 for the current micro-batch
  double shown_after_s = 10;  // seconds before it is first shown
};

// Returns "evaluation at step 3: 480 of 2000 samples, 1m20s left", "reading weights: 43 %, 25s
// left", or "saving out: 20s so far".
std::string phase_text(const ProgressPhase& phase, int64_t done, double elapsed_s);

class PhaseProgress {
 public:
  using Clock = std::function<double()>;  // seconds, monotonic

  // Shows phases through `progress`, which must outlive it: on a terminal as the redrawn line,
  // elsewhere as lines at intervals that grow from ten seconds to a minute.
  PhaseProgress(Progress& progress, Clock clock);
  PhaseProgress(const PhaseProgress&) = delete;
  PhaseProgress& operator=(const PhaseProgress&) = delete;

  // Starts a thread that shows what is due, even while no function is called.
  void start_ticking();

  // A Scope keeps its phase active until it is destroyed.
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
  // Begins a phase, and ends the previous one if that is still active.
  Scope begin(ProgressPhase phase);
  // Updates the current phase; does nothing without one. Must be called from the thread that began
  // it. `total`: given if it was unknown before.
  void advance(int64_t done, std::optional<int64_t> total = std::nullopt);
  // Shows what is due. Can be called from any thread.
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
  std::jthread ticker_;  // joined before the other members are destroyed
};

}  // namespace zeroth::trainer
