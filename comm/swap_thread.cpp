#include "comm/swap_thread.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::comm {
namespace {

constexpr int kTag = 0;  // Gloo keeps the order of those of one tag

}  // namespace

class SwapThread::Swap final : public c10d::Work {
 public:
  Swap(const torch::Tensor& out, const torch::Tensor& in) : out_({out}), in_({in}) {}

  void post(c10d::Backend& backend) {
    const int other = 1 - backend.getRank();
    try {
      received_ = backend.recv(out_, other, kTag);
      sent_ = backend.send(in_, other, kTag);
    } catch (const std::exception&) {
      refused_ = std::current_exception();
    }
  }
  // Blocks until both have ended.
  void run() {
    try {
      if (refused_) std::rethrow_exception(refused_);
      if (!received_->wait(kNoTimeout) || !sent_->wait(kNoTimeout))
        throw Error("the group of this rank was closed");
      ended_->markCompleted();
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
  }
  void fail(const std::exception_ptr& why) {
    give_up();
    ended_->setError(why);
  }
  // Ends run(). From any thread.
  void give_up() {
    for (const auto& half : {received_, sent_}) {
      if (half) std::invoke(&c10d::Work::abort, *half);
    }
  }

  bool isCompleted() override { return ended_->completed(); }
  bool wait(std::chrono::milliseconds /*the backend's holds*/) override {
    ended_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return ended_; }

  bool failed() const { return ended_->hasError(); }
  std::exception_ptr why() const { return ended_->exception_ptr(); }

 private:
  std::vector<torch::Tensor> out_, in_;
  c10::intrusive_ptr<c10d::Work> received_, sent_;
  std::exception_ptr refused_;
  c10::intrusive_ptr<c10::ivalue::Future> ended_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
};

SwapThread::SwapThread(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)), posts_([this] { post(); }), waits_([this] { wait(); }) {}

SwapThread::~SwapThread() {
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  changed_.notify_all();
  posts_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& swap : under_way_) swap->give_up();
  }
  waits_.join();
}

c10::intrusive_ptr<c10d::Work> SwapThread::swap(const torch::Tensor& out, const torch::Tensor& in) {
  auto swap = c10::make_intrusive<Swap>(out, in);
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(swap);
  }
  changed_.notify_all();
  return swap;
}

void SwapThread::post() {
  for (;;) {
    c10::intrusive_ptr<Swap> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return leaves_ || !asked_.empty(); });
      if (asked_.empty()) return;
      next = asked_.front();
    }
    next->post(*backend_);
    {
      const std::lock_guard lock(mutex_);
      asked_.pop_front();
      under_way_.push_back(next);
    }
    changed_.notify_all();
  }
}

void SwapThread::wait() {
  std::exception_ptr failed;
  for (;;) {
    c10::intrusive_ptr<Swap> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !under_way_.empty() || (leaves_ && asked_.empty()); });
      if (under_way_.empty()) return;
      next = under_way_.front();
    }
    if (failed)
      next->fail(failed);
    else
      next->run();
    if (next->failed()) failed = next->why();
    const std::lock_guard lock(mutex_);
    under_way_.pop_front();
  }
}

}  // namespace zeroth::comm
