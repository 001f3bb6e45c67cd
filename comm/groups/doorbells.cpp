#include "comm/groups/doorbells.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {
namespace {

// Peers are usually nearly in step: spinning this long is cheaper than sleeping and being woken.
constexpr std::chrono::microseconds kSpin{20};

// Sleeps while the word is `value`, at most `limit`.
void sleep_on(std::atomic<uint32_t>& word, uint32_t value, std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

}  // namespace

size_t Doorbells::bytes(int ranks) {
  return sizeof(Doorbell) * static_cast<size_t>(ranks);
}

Doorbells::Doorbells(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks)
    : segment_(std::move(segment)),
      rank_(rank),
      doorbells_(reinterpret_cast<Doorbell*>(segment_->data() + offset),
                 static_cast<size_t>(ranks)) {
  ZEROTH_CHECK(offset % alignof(Doorbell) == 0 && segment_->size() >= offset + bytes(ranks),
               "{} bytes from {} on for {} ranks", segment_->size(), offset, ranks);
}

// Sequentially consistent here and in wait(): either the sleeper sees what was stored, or this rank
// sees the sleeper.
void Doorbells::notify(int rank) {
  Doorbell& doorbell = doorbells_[static_cast<size_t>(rank)];
  if (!doorbell.is_sleeping.load(std::memory_order_seq_cst)) return;
  doorbell.signal.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &doorbell.signal, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool Doorbells::wait(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < start + kSpin) {
    if (ready()) return true;
  }
  Doorbell& doorbell = doorbells_[static_cast<size_t>(rank_)];
  for (;;) {
    doorbell.is_sleeping.store(true, std::memory_order_seq_cst);
    const uint32_t signal = doorbell.signal.load(std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool now = ready();
    const auto left = start + limit - std::chrono::steady_clock::now();
    if (!now && left.count() > 0) sleep_on(doorbell.signal, signal, left);
    doorbell.is_sleeping.store(false, std::memory_order_relaxed);
    if (now || left.count() <= 0) return now;
  }
}

}  // namespace zeroth::comm
