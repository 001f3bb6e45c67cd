#include "trainer/report/phase_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/text/units.h"

namespace zeroth::trainer {
namespace {

constexpr std::chrono::seconds kBetweenTicks{1};
constexpr double kBetweenRedraws = 1;  // seconds
constexpr double kMinBetweenLines = 10, kMaxBetweenLines = 60;

}  // namespace

std::string phase_text(const ProgressPhase& phase, int64_t done, double elapsed_s) {
  std::string text = phase.name + ":";
  if (phase.total > 0) {
    const int64_t shown = std::min(done + phase.first, phase.total);
    text += phase.counts.empty()
                ? fmt::format(" {} %", done * 100 / phase.total)
                : " " + fmt::format(fmt::runtime(phase.counts), shown, phase.total);
  }
  if (phase.total == 0 || done == 0) {
    return fmt::format("{}{} {} so far", text, phase.total > 0 ? "," : "",
                       format_duration(elapsed_s));
  }
  const double left =
      elapsed_s / static_cast<double>(done) * static_cast<double>(phase.total - done);
  return fmt::format("{}, {} left", text, format_duration(left));
}

PhaseProgress::PhaseProgress(Progress& progress, Clock clock)
    : progress_(progress), clock_(std::move(clock)) {}

void PhaseProgress::start_ticking() {
  ticker_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      show_due();
      stopped_.wait_for(lock, stop, kBetweenTicks, [] { return false; });
    }
  });
}

PhaseProgress::Scope PhaseProgress::begin(ProgressPhase phase) {
  const std::lock_guard lock(mutex_);
  const double now = clock_();
  const double due = now + phase.shown_after_s;
  current_ = Current{.phase = std::move(phase), .begin_s = now, .next_s = due};
  return Scope(this);
}

void PhaseProgress::advance(int64_t done, std::optional<int64_t> total) {
  const std::lock_guard lock(mutex_);
  if (!current_) return;
  current_->done = done;
  if (total) current_->phase.total = *total;
  show_due();
}

void PhaseProgress::tick() {
  const std::lock_guard lock(mutex_);
  show_due();
}

void PhaseProgress::show_due() {
  if (!current_) return;
  const double now = clock_();
  if (now < current_->next_s) return;
  const double elapsed = now - current_->begin_s;
  // The time between lines grows with the elapsed time.
  current_->next_s =
      now + (progress_.redraws() ? kBetweenRedraws
                                 : std::clamp(elapsed / 6, kMinBetweenLines, kMaxBetweenLines));
  current_->shown = true;
  progress_.status(phase_text(current_->phase, current_->done, elapsed));
}

void PhaseProgress::finish() {
  const std::lock_guard lock(mutex_);
  if (!current_) return;
  if (current_->shown) {
    progress_.line(fmt::format("{}: done in {}", current_->phase.name,
                               format_duration(clock_() - current_->begin_s)));
  }
  current_.reset();
}

void PhaseProgress::end() {
  const std::lock_guard lock(mutex_);
  current_.reset();
}

}  // namespace zeroth::trainer
