// The streams of a device that does not exist. What is queued on them runs on the host, as late, as
// early or as mixed up as their order allows: what nobody waits for is seen to be wrong here, which
// on a real device takes bad luck.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>

namespace zeroth::simulated {

using StreamNumber = int64_t;
constexpr StreamNumber kDefaultStream = 0;

// When queued work runs, as far as nobody waits for it.
enum class Pace {
  kLate,          // not before somebody waits for it
  kDefaultFirst,  // at once on the default stream, late on others
  kOthersFirst,   // the other way round
  kRandom,        // now and then some pieces of work, by a seed: queues grow, and empty again
};

class Timeline {
 public:
  // A place in a stream's work.
  struct Place {
    StreamNumber stream = kDefaultStream;
    bool passed = false;
    double seconds = 0;  // when it was passed, on the host's clock
  };
  using Mark = std::shared_ptr<Place>;

  // ZEROTH_SIMULATED_PACE: late, default-first, others-first, or a number, the seed of kRandom.
  static Timeline& get();

  void queue(StreamNumber stream, std::function<void()> work);
  Mark mark(StreamNumber stream);
  // What is queued on `stream` from now on runs behind the mark.
  void order(StreamNumber stream, const Mark& mark);
  // As a driver's query. Time goes on by many of them only: who asks in a loop gets on, and nobody
  // else is spared a wait.
  bool query(const Mark& mark);
  void finish(const Mark& mark);
  void finish(StreamNumber stream) { finish(mark(stream)); }
  void finish_all();
  // How often the host waited so far, for work that had ended already, too, and to hand over memory
  // that is not locked, which a driver copies in the stream's order.
  int64_t waits() const { return waits_; }
  void handed_over() { ++waits_; }

  // Held while work runs. Guards the device's memory too, which queues work.
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  struct Item {
    std::function<void()> work;  // or, without,
    Mark passes;                 // to be marked as passed, or
    Mark waits;                  // to be waited for
  };

  Timeline();
  bool can_step(StreamNumber stream) const;
  void step(StreamNumber stream) noexcept;
  void push(StreamNumber stream, Item item);
  void run_as_paced();
  void run_while_possible(StreamNumber stream);

  std::recursive_mutex mutex_;
  Pace pace_ = Pace::kLate;
  std::mt19937_64 random_;
  std::map<StreamNumber, std::deque<Item>> streams_;
  int vain_queries_ = 0;
  std::atomic<int64_t> waits_ = 0;
  bool running_ = false;
};

}  // namespace zeroth::simulated
