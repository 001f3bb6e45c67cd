// How what rests is used, and what moving it takes. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace zeroth::offload {

enum class Access {
  kRead,
  kReadWrite,
  kWrite  // every element will be written: what rests there is not read
};

// Since the store was made; differences of two readings tell about a step.
struct Traffic {
  int64_t bytes_read = 0;     // from the resting place
  int64_t bytes_written = 0;  // to it
  double under_way_s = 0;     // during which at least one transfer was under way
  double waited_s = 0;        // of that, callers were blocked

  Traffic& operator+=(const Traffic& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    under_way_s += other.under_way_s;
    waited_s += other.waited_s;
    return *this;
  }
  Traffic operator-(const Traffic& earlier) const {
    return {bytes_read - earlier.bytes_read, bytes_written - earlier.bytes_written,
            under_way_s - earlier.under_way_s, waited_s - earlier.waited_s};
  }
};

}  // namespace zeroth::offload
