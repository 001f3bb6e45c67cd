// Where a run's numbers go for other programs to plot: one implementation per kind of file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace zeroth::monitor {

// Whose names curves have, and over what they are drawn.
enum class EventNames {
  kDeepSpeed,  // Train/Samples/lr, over the samples trained so far by all ranks
  kTrainer     // train/learning_rate, over steps, as Hugging Face's Trainer
};

// One point of a curve.
struct Event {
  std::string tag;  // never a text of the user's
  double value = 0;
  int64_t x = 0;  // samples or steps
};

class Monitor {
 public:
  virtual ~Monitor() = default;

  // Other programs see the events when it returns. Throws an Error that names the file.
  virtual void write(std::span<const Event> events) = 0;
  // Called before the first write: the run resumes after the point `x`. What an earlier try has
  // written of later ones is not shown any more. So for errors.
  virtual void resume_from(int64_t x) = 0;
  // Called before the first write: the run begins anew, after a try that began at `since` (seconds
  // since 1970) and saved no checkpoint. What that try has written is not shown any more. So for
  // errors.
  virtual void start_over(double since) = 0;
};

}  // namespace zeroth::monitor
