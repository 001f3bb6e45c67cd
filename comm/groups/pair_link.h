// Tensors exchanged by two ranks of different nodes over a dedicated connection.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "base/machine/file_descriptor.h"
#include "device/tensor.h"

namespace c10d {
class Store;
class Work;
}  // namespace c10d

namespace zeroth::comm {

struct PairOptions {
  std::string address;  // this node's address, reachable by the other rank
  std::string name;     // the pair's name: the same on both ranks, unique within a run
  std::string secret;   // the run's secret; if empty, every peer is accepted
  std::chrono::milliseconds timeout{600'000};
};

// Connects the two ranks. `rank` is 0, which listens at its address until the other rank connects,
// or 1, which reads the address from `store` and connects. Each proves to the other by an HMAC that
// it knows the secret. A client that cannot prove it, or is silent for some seconds, is rejected
// and delays no other client. Collective. Throws an Error that names address and reason if the
// ranks are not connected in time.
FileDescriptor connect_pair(c10d::Store& store, int rank, const PairOptions& options);

// A PairLink has one thread that sends and one that receives; both sleep in the kernel while no
// data moves. Gloo lets a rank send only after the other has said where to receive, and its thread
// spins while another thread of the rank holds a connection: with as many ranks as cores it then
// spins on the core that the other rank needs (bench/README.md).
class PairLink {
 public:
  // Takes over `socket`, which is connected to the other rank's, with no data in flight. `limit`:
  // the time within which the other rank must let some byte through.
  PairLink(FileDescriptor socket, std::chrono::milliseconds limit);
  // Ends operations in progress with an error.
  ~PairLink();
  PairLink(const PairLink&) = delete;
  PairLink& operator=(const PairLink&) = delete;

  // Sets `out` to the other rank's `in`, which has as many bytes. Tensors are contiguous CPU
  // tensors; each may be empty. Operations complete in the order of the calls; after a failure all
  // fail. All calls must come from one thread.
  c10::intrusive_ptr<c10d::Work> send_recv(const torch::Tensor& out, const torch::Tensor& in);

 private:
  class SendRecv;
  using Queue = std::deque<c10::intrusive_ptr<SendRecv>>;

  // Runs a thread that `move`s the bytes of each operation in its queue, one after the other.
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
