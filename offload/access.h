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
  double reading_s = 0;       // during which at least one read was under way
  double writing_s = 0;
  double in_flight_s = 0;  // at least one of the two
  double waited_s = 0;     // of that, callers were blocked

  Traffic& operator+=(const Traffic& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    reading_s += other.reading_s;
    writing_s += other.writing_s;
    in_flight_s += other.in_flight_s;
    waited_s += other.waited_s;
    return *this;
  }
  Traffic operator-(const Traffic& earlier) const {
    return {.bytes_read = bytes_read - earlier.bytes_read,
            .bytes_written = bytes_written - earlier.bytes_written,
            .reading_s = reading_s - earlier.reading_s,
            .writing_s = writing_s - earlier.writing_s,
            .in_flight_s = in_flight_s - earlier.in_flight_s,
            .waited_s = waited_s - earlier.waited_s};
  }
};

}  // namespace zeroth::offload
