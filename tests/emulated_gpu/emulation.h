// Runs the kernels of a GPU on the CPU, their text unchanged: the headers in include/ take the
// place of CUDA's. The threads of a block are fibers, so that one can wait in the middle of a
// kernel; blocks run one after the other. Between two barriers the warps of a block run in an order
// that is drawn from a seed, each as far as it can, and so do the lanes of a warp between two
// shuffles: a result that depends on an order that nothing enforces differs from seed to seed.
//
// A barrier that some threads of the block do not reach, and a shuffle that some of its
// participants do not reach, are an Error that names kernel, block, place and thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zeroth::emulated {

constexpr int kWarp = 32;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct Error : std::runtime_error {
  using runtime_error::runtime_error;
};

// Of the launches that this thread makes from here on. 0: threads, lanes and blocks by number.
void order_by(uint64_t seed);

// While it lives, launches of this thread run these blocks and no others of their grid: that is
// how a test comes to elements beyond 2^31.
class OnlyBlocks {
 public:
  explicit OnlyBlocks(std::vector<uint64_t> indices);  // x is the fastest
  ~OnlyBlocks();
  OnlyBlocks(const OnlyBlocks&) = delete;
  OnlyBlocks& operator=(const OnlyBlocks&) = delete;
};

// The instances of kernels named `kernel` that this program has, and how often each was launched.
// Needs the program's symbols.
struct Instance {
  std::string name;
  int64_t launches = 0;
};
std::vector<Instance> instances_of(const std::string& kernel);

int64_t launches();  // of all kernels

// What follows is for the headers in include/.

// Where a kernel waits.
struct Site {
  const char* file;
  int line;
  bool operator==(const Site& other) const {
    return line == other.line && std::strcmp(file, other.file) == 0;
  }
};

void wait_for_block(const Site& site);
int this_lane();
// The value that lane `source` of this warp gives.
uint64_t exchange_bits(unsigned mask, uint64_t bits, int source, const Site& site);

template <typename T>
T exchange(unsigned mask, T value, int source, const Site& site) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange_bits(mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// One thread's run of a kernel.
struct Call {
  const void* kernel;
  void (*run)(const void* arguments);
  const void* arguments;
};
void launch(const Call& call, dim3 grid, dim3 block);

// At once, whatever the stream.
template <typename Stream, typename... Parameters, typename... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream, const Args&... args) {
  using Bound = std::pair<void (*)(Parameters...), std::tuple<Parameters...>>;
  const Bound bound(kernel, std::tuple<Parameters...>(args...));
  launch(Call{reinterpret_cast<const void*>(kernel),
              [](const void* arguments) {
                const auto* self = static_cast<const Bound*>(arguments);
                std::apply(self->first, self->second);
              },
              &bound},
         grid, block);
}

}  // namespace zeroth::emulated
