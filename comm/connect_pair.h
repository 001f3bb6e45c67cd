// Two ranks of different machines get a connection of their own.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

#include "base/file_descriptor.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct PairOptions {
  std::string address;  // of this machine, which the other rank reaches
  std::string name;     // of the two, the same on both and another for each two of a run
  std::string secret;   // of the run; with an empty one everybody is believed
  std::chrono::milliseconds timeout{600'000};
};

// `rank`: 0, which listens at its address until the other has come, or 1, which finds the address
// in `store` and connects. Each proves to the other by an HMAC that it knows the secret; whoever
// cannot, or says nothing for some seconds, is sent away and holds nothing up. Collective. Throws
// an Error that names address and reason when they are not connected in time.
FileDescriptor connect_pair(c10d::Store& store, int rank, const PairOptions& options);

}  // namespace zeroth::comm
