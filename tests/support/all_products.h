// The products of matrices that tests force, one after the other (MatmulBackendGuard in
// base/machine/cpu.h).
#pragma once

#include <string>
#include <vector>

namespace zeroth::testing {

// The values of ZEROTH_PRODUCT that this architecture accepts.
inline std::vector<std::string> all_products() {
#if defined(__x86_64__)
  return {"libtorch", "onednn", "tiles"};
#else
  return {"libtorch"};
#endif
}

}  // namespace zeroth::testing
