// Runs kernels on drawn shapes and compares what they write with formulas in double.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/emulated_gpu/numbers.h"

namespace zeroth::emulated {

struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};

// Memory of one shape. Around each array there are NaN, which no kernel writes.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Begins `offset` bytes behind a multiple of 256. Filled with NaN.
  template <typename T>
  T* array(int64_t count, int64_t offset = 0) {
    return reinterpret_cast<T*>(take(count * static_cast<int64_t>(sizeof(T)), offset));
  }
  // Zeros, however many: those that are not written take no memory.
  template <typename T>
  T* far_array(int64_t count) {
    return reinterpret_cast<T*>(take_far(count * static_cast<int64_t>(sizeof(T))));
  }
  void check() const;  // that nothing was written around the arrays
  void clear();

 private:
  std::byte* take(int64_t bytes, int64_t offset);
  std::byte* take_far(int64_t bytes);

  std::byte *near_, *far_;
  int64_t near_used_ = 0, far_used_ = 0;
  std::vector<std::span<const std::byte>> around_;
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int64_t from_to(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return from_to(1, n) == 1; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// A value about 1, now and then a smaller or larger one.
double usual_value(Draws& draws);

// One shape: its draws, its memory, and what a failure says of it.
class Shape : public Draws {
 public:
  Shape(uint64_t seed, int64_t number, Memory& its_memory)
      : Draws(seed), index(number), memory(its_memory) {}

  const int64_t index;  // of an instance's shapes
  Memory& memory;
  std::string text;

  // With elements beyond 2^31.
  bool is_far() const { return index % 1000 == 7; }
  // In bytes, a multiple of `unit`, below 256.
  int64_t offset(int64_t unit) { return from_to(0, 256 / unit - 1) * unit; }

  template <typename T>
  void fill(T* to, int64_t count);
  // Puts one value among them that is no number, infinite, -0 or subnormal.
  template <typename T>
  void put_special(T* to, int64_t count) {
    to[from_to(0, count - 1)] = special<T>(static_cast<int>(from_to(0, 4)));
  }

  // Calls launch(); now and then once more in another order of threads, which has to leave the same
  // bits in `outputs`. `blocks`: of a grid too large to run, those that run, once.
  void run(const std::function<void()>& launch, std::vector<std::span<std::byte>> outputs,
           const std::vector<uint64_t>& blocks = {});

  template <typename T>
  void expect(const char* what, int64_t i, T got, double expected, double slack) const {
    constexpr double kTiny = 0x1p-140;  // fp32 has fewer digits there
    if (!fits(got, expected, slack + kTiny)) fail(what, i, wide(got), expected, slack);
  }
  [[noreturn]] void fail(const char* what, int64_t i, double got, double expected,
                         double slack) const;
};

template <typename T>
std::span<std::byte> bytes_of(T* array, int64_t count) {
  return std::as_writable_bytes(std::span(array, static_cast<size_t>(count)));
}

template <typename T>
void Shape::fill(T* to, int64_t count) {
  static constexpr int64_t kPool = 1 << 16;
  static const std::vector<T> pool = [] {
    Draws draws(7);
    std::vector<T> values(kPool);
    for (T& value : values) value = narrowed<T>(rounded<T>(usual_value(draws)));
    return values;
  }();
  for (int64_t done = 0; done < count;) {
    const int64_t begin = from_to(0, kPool - 1), n = std::min(kPool - begin, count - done);
    std::memcpy(to + done, pool.data() + begin, static_cast<size_t>(n) * sizeof(T));
    done += n;
  }
}

// At least so many shapes of every instance of a kernel.
constexpr int64_t kShapes = 2000;
struct Job {
  std::string name;  // of an instance
  std::function<void(Shape&)> shape;
};
// On two threads. Fails the test where a shape does, or where an instance of one of these kernels
// was launched less often.
void run_shapes(const std::vector<Job>& jobs, const std::vector<std::string>& kernels);

}  // namespace zeroth::emulated
