// Storage types of 16-bit floats.
#pragma once

#include <cstdint>

namespace zeroth {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

}  // namespace zeroth
