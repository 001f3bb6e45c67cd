// How offloaded data is accessed, and what its transfers cost. Independent of LibTorch.
#pragma once

#include <cstdint>

namespace zeroth::offload {

enum class Access {
  kRead,
  kReadWrite,
  kWrite  // every element will be overwritten: the stored values are not read
};

// Traffic counts since the store was made; the difference of two readings covers a step.
struct Traffic {
  int64_t bytes_read = 0;     // from the backing storage
  int64_t bytes_written = 0;  // to the backing storage
  double reading_s = 0;       // time during which at least one read was in flight
  double writing_s = 0;
  double in_flight_s = 0;  // at least one of the two
  double waited_s = 0;     // part of in_flight_s during which callers were blocked

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
