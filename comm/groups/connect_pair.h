// A dedicated connection between two ranks of different nodes.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

#include "base/machine/file_descriptor.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct PairOptions {
  std::string address;  // this node's address, reachable by the other rank
  std::string name;     // the pair's name: the same on both ranks, unique within a run
  std::string secret;   // the run's secret; if empty, every peer is accepted
  std::chrono::milliseconds timeout{600'000};
};

// Connects the two ranks. `rank` is 0, which listens at its address until the other rank connects,
// or 1, which reads the address from `store` and connects. Each proves to the other by an HMAC that
// it knows the secret. A client that cannot prove it, or is silent for some seconds, is rejected
// and delays no other client. Collective. Throws an Error that names address and reason if the
// ranks are not connected in time.
FileDescriptor connect_pair(c10d::Store& store, int rank, const PairOptions& options);

}  // namespace zeroth::comm
