// Interface that writes a run's numbers for other programs to plot, with one implementation per
// kind of file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace zeroth::monitor {

// Naming scheme of curves, and the x axis over which they are drawn.
enum class EventNames {
  kDeepSpeed,  // Train/Samples/lr, over the samples trained so far by all ranks
  kTrainer     // train/learning_rate, over steps, as in Hugging Face's Trainer
};

// One point of a curve.
struct Event {
  std::string tag;  // never text from the user
  double value = 0;
  int64_t x = 0;  // samples or steps
};

class Monitor {
 public:
  virtual ~Monitor() = default;

  // Writes events; other programs see them when it returns. Throws an Error that names the file.
  virtual void write(std::span<const Event> events) = 0;
  // Prepares to resume after the point `x`; called before the first write. Later points that an
  // earlier attempt wrote are no longer shown. Throws an Error that names the file.
  virtual void resume_from(int64_t x) = 0;
  // Prepares to start over after an attempt that began at `since` (seconds since 1970) and saved no
  // checkpoint; called before the first write. Points that the attempt wrote are no longer shown.
  // Throws an Error that names the file.
  virtual void start_over(double since) = 0;
};

}  // namespace zeroth::monitor
