#include "tests/emulated_gpu/shapes.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <sstream>
#include <thread>

#include "tests/emulated_gpu/emulation.h"

namespace zeroth::emulated {
namespace {

constexpr int64_t kNearBytes = int64_t{256} << 20, kFarBytes = int64_t{256} << 30;
constexpr int64_t kAround = 256;

std::byte* reserve(int64_t bytes) {
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Failure("no addresses for " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(memory);
}

}  // namespace

double half_value(uint16_t bits) {
  static const std::vector<double> values = [] {
    std::vector<double> all(1 << 16);
    for (int i = 0; i < 1 << 16; ++i) {
      const int exponent = i >> 10 & 0x1f, fraction = i & 0x3ff;
      const double size = exponent == 0      ? std::ldexp(fraction, -24)
                          : exponent != 0x1f ? std::ldexp(fraction + 1024, exponent - 25)
                          : fraction == 0    ? INFINITY
                                             : NAN;
      all[static_cast<size_t>(i)] = i >> 15 == 0 ? size : -size;
    }
    return all;
  }();
  return values[bits];
}

Memory::Memory() : near_(reserve(kNearBytes)), far_(reserve(kFarBytes)) {}

Memory::~Memory() {
  munmap(near_, kNearBytes);
  munmap(far_, kFarBytes);
}

std::byte* Memory::take(int64_t bytes, int64_t offset) {
  const int64_t begin = near_used_ + kAround + offset, end = begin + bytes;
  if (end + 2 * kAround > kNearBytes) throw Failure("a shape of more bytes than there are");
  std::memset(near_ + near_used_, 0xff, static_cast<size_t>(end + kAround - near_used_));
  around_.emplace_back(near_ + near_used_, near_ + begin);
  around_.emplace_back(near_ + end, near_ + end + kAround);
  near_used_ = (end + kAround + 255) / 256 * 256;
  return near_ + begin;
}

std::byte* Memory::take_far(int64_t bytes) {
  std::byte* const begin = far_ + far_used_;
  far_used_ += (bytes + 4095) / 4096 * 4096;
  if (far_used_ > kFarBytes) throw Failure("a shape of more addresses than there are");
  return begin;
}

void Memory::check() const {
  for (const auto bytes : around_) {
    for (const std::byte byte : bytes) {
      if (byte != std::byte{0xff}) throw Failure("something is written outside the arrays");
    }
  }
}

void Memory::clear() {
  around_.clear();
  near_used_ = 0;
  if (far_used_ != 0) madvise(far_, static_cast<size_t>(far_used_), MADV_DONTNEED);
  far_used_ = 0;
}

uint64_t Draws::next() {  // splitmix64
  uint64_t x = state_ += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

double usual_value(Draws& draws) {
  const double x = draws.uniform() + draws.uniform() + draws.uniform() - 1.5;
  return std::ldexp(x, draws.one_in(32) ? static_cast<int>(draws.from_to(-6, 4)) : 0);
}

void Shape::run(const std::function<void()>& launch, std::vector<std::span<std::byte>> outputs,
                const std::vector<uint64_t>& blocks) {
  if (!blocks.empty()) {
    const OnlyBlocks only(blocks);
    return launch();
  }
  if (is_far() || index % 16 != 3) return launch();
  const auto copies = [&] {
    std::vector<std::vector<std::byte>> all;
    for (const auto bytes : outputs) all.emplace_back(bytes.begin(), bytes.end());
    return all;
  };
  const auto before = copies();
  launch();
  const auto once = copies();
  for (size_t i = 0; i < outputs.size(); ++i) std::ranges::copy(before[i], outputs[i].begin());
  order_by(next() | 1);
  launch();
  if (copies() != once) throw Failure(text + ": the order of threads changes bits");
}

void Shape::fail(const char* what, int64_t i, double got, double expected, double slack) const {
  std::ostringstream said;
  said.precision(10);
  said << text << ": " << what << "[" << i << "] is " << got << ", expected " << expected
       << " within " << slack;
  throw Failure(said.str());
}

void run_shapes(const std::vector<Job>& jobs, const std::vector<std::string>& kernels) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::string failure;
  const auto work = [&] {
    Memory memory;
    for (size_t i; (i = next++) < 2 * jobs.size();) {  // a half of an instance's shapes each
      const Job& job = jobs[i / 2];
      for (int64_t k = static_cast<int64_t>(i % 2); k < kShapes; k += 2) {
        const uint64_t seed = i / 2 * 1'000'003 + static_cast<uint64_t>(k);
        Shape shape(seed, k, memory);
        order_by(k % 8 == 0 ? 0 : seed + 1);
        try {
          job.shape(shape);
          memory.check();
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          next = 2 * jobs.size();
          failure = job.name + ", shape " + std::to_string(k) + ": " + error.what();
          return;
        }
        memory.clear();
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
  order_by(0);
  if (!failure.empty()) FAIL(failure);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  for (const std::string& kernel : kernels) {
    int64_t launches = 0;
    const auto instances = instances_of(kernel);
    CHECK(!instances.empty());
    for (const Instance& instance : instances) {
      CAPTURE(instance.name);
      CHECK(instance.launches >= kShapes);
      launches += instance.launches;
    }
    MESSAGE(kernel, ": ", instances.size(), " instances, ", launches, " launches");
  }
  MESSAGE((jobs.size() * kShapes), " shapes in ", seconds.count(), " s");
}

}  // namespace zeroth::emulated
