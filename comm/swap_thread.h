// Tensors exchanged by the two ranks of a Gloo backend, without its threads for collectives.
#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace zeroth::comm {

// Gloo lets a rank send only once the other has said, over the same connection, where to receive. A
// rank that is late would say so behind all that it sends itself, and the two directions would take
// turns: so receives are posted before sends. By a thread of its own, because Gloo's spins while
// one that posts is off its core, as a rank's busy one often is; another waits for the ends.
class SwapThread {
 public:
  explicit SwapThread(c10::intrusive_ptr<c10d::Backend> backend);
  // What is under way ends, with an error.
  ~SwapThread();
  SwapThread(const SwapThread&) = delete;
  SwapThread& operator=(const SwapThread&) = delete;

  // out = the other rank's `in`. Ends in the order of these calls, at the latest with the backend's
  // time limit; after one that failed all do. To be called on one thread.
  c10::intrusive_ptr<c10d::Work> swap(const torch::Tensor& out, const torch::Tensor& in);

 private:
  class Swap;
  using Queue = std::deque<c10::intrusive_ptr<Swap>>;

  // Threads: what is asked for, one after the other; then what is under way.
  void post();
  void wait();

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue asked_, under_way_;  // guarded by mutex_
  bool leaves_ = false;      // guarded by mutex_
  std::thread posts_, waits_;
};

}  // namespace zeroth::comm
