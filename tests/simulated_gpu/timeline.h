// The streams of devices that do not exist. What is queued on them runs on the host, as late, as
// early or as mixed up as their order allows: what nobody waits for is seen to be wrong here, which
// on a real device takes bad luck. Streams of several devices may wait for each other, and the
// threads that queue work for them, too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>

namespace zeroth::simulated {

// Of the streams of all devices: c10's own numbers begin with 0 for each device.
using StreamNumber = int64_t;
constexpr StreamNumber kStreamsPerDevice = 1 << 16;
constexpr StreamNumber kDefaultStream = 0;  // of device 0
constexpr StreamNumber stream_number(int device, int64_t id) {
  return device * kStreamsPerDevice + id;
}
constexpr int device_of(StreamNumber stream) {
  return static_cast<int>(stream / kStreamsPerDevice);
}
constexpr bool is_default(StreamNumber stream) {
  return stream % kStreamsPerDevice == kDefaultStream;
}

// When queued work runs, as far as nobody waits for it.
enum class Pace {
  kLate,          // not before somebody waits for it
  kDefaultFirst,  // at once on default streams, late on others
  kOthersFirst,   // the other way round
  kRandom,        // now and then some pieces of work, by a seed: queues grow, and empty again
};

class Timeline {
 public:
  static constexpr StreamNumber kNowhere = -1;
  // A place in a stream's work.
  struct Place {
    StreamNumber stream = kNowhere;
    bool passed = false;
    double seconds = 0;  // when it was passed, on the host's clock
  };
  using Mark = std::shared_ptr<Place>;

  // ZEROTH_SIMULATED_PACE: late, default-first, others-first, or a number, the seed of kRandom.
  static Timeline& get();

  void queue(StreamNumber stream, std::function<void()> work);
  Mark mark(StreamNumber stream);
  // A mark that mark(stream, promised) will queue: until then who waits for it blocks, as a device
  // does whose collective a peer has not begun.
  static Mark promise() { return std::make_shared<Place>(); }
  void mark(StreamNumber stream, const Mark& promised);
  // What is queued on `stream` from now on runs behind the mark.
  void order(StreamNumber stream, const Mark& mark);
  // Holds the stream up, at random paces only.
  void delay(StreamNumber stream);
  // As a driver's query. Time goes on by many of them only: who asks in a loop gets on, and nobody
  // else is spared a wait.
  bool query(const Mark& mark);
  void finish(const Mark& mark);
  void finish(StreamNumber stream) { finish(mark(stream)); }
  void finish_device(int device);
  // How often the host waited so far, for work that had ended already, too, and to hand over memory
  // that is not locked, which a driver copies in the stream's order.
  int64_t waits() const { return waits_; }
  void handed_over() { ++waits_; }
  // From now on the pace is random, by this seed.
  void seed(uint64_t seed);

  // Held while work runs. Guards the device's memory too, which queues work.
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  struct Item {
    std::function<void()> work;  // or, without,
    Mark passes;                 // to be marked as passed, or
    Mark waits;                  // to be waited for; an Item without any of them does nothing
  };

  Timeline();
  bool can_step(StreamNumber stream) const;
  bool step(StreamNumber stream, size_t before = 0) noexcept;
  void step_or_wait(StreamNumber stream, std::unique_lock<std::recursive_mutex>& lock);
  void push(StreamNumber stream, Item item);
  void run_as_paced();
  void run_while_possible(StreamNumber stream);

  std::recursive_mutex mutex_;
  Pace pace_ = Pace::kLate;
  std::mt19937_64 random_;
  std::map<StreamNumber, std::deque<Item>> streams_;
  std::condition_variable_any promise_kept_;
  int vain_queries_ = 0;
  std::atomic<int64_t> waits_ = 0;
  bool running_ = false;
};

}  // namespace zeroth::simulated
