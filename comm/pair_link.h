// Tensors exchanged by two ranks of different machines, over a connection of their own.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/file_descriptor.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace zeroth::comm {

// One thread sends and one receives, and both sleep in the kernel while nothing moves. Gloo lets a
// rank send only once the other has said where to receive, and its thread spins while another of
// the rank holds a connection: with as many ranks as cores it then spins on the core that the other
// needs (bench/README.md).
class PairLink {
 public:
  // `socket`: connected to the other rank's, both with nothing on the way. `limit`: in which the
  // other rank lets some byte through.
  PairLink(FileDescriptor socket, std::chrono::milliseconds limit);
  // What is under way ends, with an error.
  ~PairLink();
  PairLink(const PairLink&) = delete;
  PairLink& operator=(const PairLink&) = delete;

  // out = the other rank's `in`, which has as many bytes; CPU, contiguous, each may be empty. Ends
  // in the order of these calls; after one that failed all do. To be called on one thread.
  c10::intrusive_ptr<c10d::Work> send_recv(const torch::Tensor& out, const torch::Tensor& in);

 private:
  class SendRecv;
  using Queue = std::deque<c10::intrusive_ptr<SendRecv>>;

  // A thread: `move`s the bytes of each swap in its queue, one after the other.
  void serve(Queue& queue, void (PairLink::*move)(SendRecv&, uint64_t sequence));
  void send(SendRecv& send_recv, uint64_t sequence);
  void receive(SendRecv& send_recv, uint64_t sequence);
  void fail(const std::exception_ptr& why);

  FileDescriptor socket_;
  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue to_send_, to_receive_;  // guarded by mutex_
  std::exception_ptr failed_;   // guarded by mutex_
  std::thread send_thread_, receive_thread_;
};

}  // namespace zeroth::comm
