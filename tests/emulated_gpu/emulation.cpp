#include "tests/emulated_gpu/emulation.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "tests/emulated_gpu/fiber.h"
#include "tests/emulated_gpu/include/cuda_runtime.h"
#include "tests/emulated_gpu/kernel_names.h"

namespace zeroth::emulated {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr size_t kStackBytes = size_t{64} << 10;

std::string to_string(const Site& site) {
  return std::string(site.file) + ":" + std::to_string(site.line);
}

class Numbers {  // splitmix64
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[next() % i]);
  }

 private:
  uint64_t state_;
};

enum class State { kReady, kAtBarrier, kInShuffle, kEnded };

struct Thread {
  Fiber fiber;
  State state = State::kReady;
  uint3 index = {};
  Site site = {};
  unsigned mask = 0;  // of a shuffle, with what it gives and gets
  int source = 0;
  uint64_t bits = 0;
};

// A block, one at a time.
class Block {
 public:
  Block() {
    void* const memory = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Error("no memory for the stacks of a block's threads");
    stacks_ = static_cast<std::byte*>(memory);
  }
  ~Block() { munmap(stacks_, kMaxThreads * kStackBytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run(const Call& call, dim3 block, uint64_t seed);

  void wait(const Site& site) {
    running_->site = site;
    leave(State::kAtBarrier);
  }
  int lane() const { return static_cast<int>(running_ - threads_.data()) % kWarp; }
  uint64_t exchange(unsigned mask, uint64_t bits, int source, const Site& site);

 private:
  static void run_thread();
  void leave(State state) {
    running_->state = state;
    scheduler_.resume(running_->fiber);
  }
  // Those behind the last are not there.
  std::span<Thread> warp_of(const Thread& thread) {
    const size_t first = (&thread - threads_.data()) / kWarp * kWarp;
    return std::span(threads_).subspan(first, std::min<size_t>(kWarp, threads_.size() - first));
  }
  void run_warp(size_t warp);
  void open_barrier();
  [[noreturn]] void stop(const std::string& what) const;
  std::string whereabouts(const Thread& thread) const;

  std::byte* stacks_;
  Fiber scheduler_;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  const Call* call_ = nullptr;
  uint64_t seed_ = 0;
  Numbers numbers_{0};
  std::string fault_;  // that the running thread found
};

thread_local std::unique_ptr<Block> block;
thread_local uint64_t order = 0;
thread_local std::optional<std::vector<uint64_t>> only;

void Block::run_thread() {
  block->call_->run(block->call_->arguments);
  block->leave(State::kEnded);
}

void Block::run(const Call& call, dim3 size, uint64_t seed) {
  call_ = &call;
  seed_ = seed;
  numbers_ = Numbers(seed);
  threads_.resize(size.x * size.y * size.z);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread.state = State::kReady;
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    // Not all at the same place of the caches.
    thread.fiber.begin(stacks_ + i * kStackBytes, kStackBytes - i % 61 * 128, &run_thread);
  }
  std::vector<size_t> warps((threads_.size() + kWarp - 1) / kWarp);
  std::iota(warps.begin(), warps.end(), 0);
  const auto ended = [](const Thread& thread) { return thread.state == State::kEnded; };
  for (;;) {
    if (seed_ != 0) numbers_.shuffle(warps);
    for (const size_t warp : warps) run_warp(warp);
    if (std::all_of(threads_.begin(), threads_.end(), ended)) return;
    open_barrier();
  }
}

// Until each of its lanes has ended or waits for other warps.
void Block::run_warp(size_t warp) {
  const auto lanes = warp_of(threads_[warp * kWarp]);
  for (bool ran = true; ran;) {
    ran = false;
    // An odd multiple and an offset, modulo 32: lanes in another order.
    const auto drawn = seed_ == 0 ? 1 : static_cast<unsigned>(numbers_.next());
    for (unsigned i = 0; i < kWarp; ++i) {
      const unsigned lane = (i * (drawn | 1) + (drawn >> 8)) % kWarp;
      if (lane >= lanes.size() || lanes[lane].state != State::kReady) continue;
      running_ = &lanes[lane];
      threadIdx = running_->index;
      running_->fiber.resume(scheduler_);
      if (!fault_.empty()) stop(std::exchange(fault_, {}));
      ran = true;
    }
  }
  for (const Thread& thread : lanes) {
    if (thread.state != State::kInShuffle) continue;
    for (const Thread& other : lanes) {
      const bool same = other.state == State::kInShuffle && other.site == thread.site;
      const bool asked = thread.mask >> (&other - lanes.data()) & 1;
      if (asked && (!same || other.mask != thread.mask)) {
        stop("the shuffle at " + to_string(thread.site) + ", where " + whereabouts(thread) +
             ", is not reached by all lanes of its mask: " + whereabouts(other));
      }
    }
    stop("the shuffle at " + to_string(thread.site) +
         " asks for lanes that the block does not have");
  }
}

void Block::open_barrier() {
  const auto waits = [](const Thread& thread) { return thread.state == State::kAtBarrier; };
  const Thread& first = *std::find_if(threads_.begin(), threads_.end(), waits);
  for (const Thread& thread : threads_) {
    if (!waits(thread) || !(thread.site == first.site)) {
      stop("the barrier at " + to_string(first.site) + ", where " + whereabouts(first) +
           ", is not reached by all threads: " + whereabouts(thread));
    }
  }
  for (Thread& thread : threads_) thread.state = State::kReady;
}

uint64_t Block::exchange(unsigned mask, uint64_t bits, int source, const Site& site) {
  Thread& own = *running_;
  const auto lanes = warp_of(own);
  own.mask = mask;
  own.source = source;
  own.bits = bits;
  own.site = site;
  own.state = State::kInShuffle;
  const auto asked = [&](int lane) { return (mask >> lane & 1) != 0; };
  const auto fail = [&](const std::string& what) {
    fault_ = "the shuffle at " + to_string(site) + " " + what;
    leave(State::kInShuffle);
  };
  if (!asked(lane())) fail("is made by a lane that its mask leaves out");
  if (source < 0 || source >= kWarp || !asked(source)) fail("reads a lane outside its mask");
  bool all = static_cast<size_t>(std::bit_width(mask)) <= lanes.size();
  for (int i = 0; all && i < static_cast<int>(lanes.size()); ++i) {
    const Thread& other = lanes[i];
    all =
        !asked(i) || (other.state == State::kInShuffle && other.mask == mask && other.site == site);
  }
  if (!all) {
    leave(State::kInShuffle);
    return own.bits;
  }
  uint64_t given[kWarp];
  for (size_t i = 0; i < lanes.size(); ++i) given[i] = lanes[i].bits;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!asked(static_cast<int>(i))) continue;
    lanes[i].bits = given[lanes[i].source];
    lanes[i].state = State::kReady;
  }
  return own.bits;
}

std::string Block::whereabouts(const Thread& thread) const {
  const auto text = "thread " + std::to_string(&thread - threads_.data());
  switch (thread.state) {
    case State::kAtBarrier:
      return text + " waits at the barrier at " + to_string(thread.site);
    case State::kInShuffle:
      return text + " waits in the shuffle at " + to_string(thread.site);
    default:
      return text + " has ended";
  }
}

void Block::stop(const std::string& what) const {
  throw Error(name_of_kernel(call_->kernel) + ", block (" + std::to_string(blockIdx.x) + ", " +
              std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) + "), order " +
              std::to_string(seed_) + ": " + what);
}

}  // namespace

void order_by(uint64_t seed) {
  order = seed;
}

OnlyBlocks::OnlyBlocks(std::vector<uint64_t> indices) {
  only = std::move(indices);
}

OnlyBlocks::~OnlyBlocks() {
  only.reset();
}

void wait_for_block(const Site& site) {
  block->wait(site);
}

int this_lane() {
  return block->lane();
}

uint64_t exchange_bits(unsigned mask, uint64_t bits, int source, const Site& site) {
  return block->exchange(mask, bits, source, site);
}

void launch(const Call& call, dim3 grid, dim3 size) {
  const uint64_t threads = uint64_t{size.x} * size.y * size.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.x > 0x7fffffff ||
      grid.y > 0xffff || grid.z > 0xffff) {
    throw Error(name_of_kernel(call.kernel) + ": no GPU takes " + std::to_string(blocks) +
                " blocks of " + std::to_string(threads) + " threads");
  }
  count_launch(call.kernel);
  if (!block) block = std::make_unique<Block>();
  std::vector<uint64_t> indices = only.value_or(std::vector<uint64_t>());
  if (!only) {
    indices.resize(blocks);
    std::iota(indices.begin(), indices.end(), 0);
  }
  Numbers numbers(order);
  if (order != 0) numbers.shuffle(indices);
  blockDim = {size.x, size.y, size.z};
  gridDim = {grid.x, grid.y, grid.z};
  for (const uint64_t index : indices) {
    if (index >= blocks) throw Error("there is no block " + std::to_string(index));
    const uint64_t row = index / grid.x;
    blockIdx = {static_cast<unsigned>(index % grid.x), static_cast<unsigned>(row % grid.y),
                static_cast<unsigned>(row / grid.y)};
    block->run(call, size, order == 0 ? 0 : numbers.next() | 1);
  }
}

}  // namespace zeroth::emulated
