// Groups over Gloo (TCP), for ranks that cannot share memory. CPU tensors.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/groups/c10d_group.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct GlooOptions {
  // Address of this node that the other ranks reach; empty: the one to which the node's name
  // resolves.
  std::string address;
  std::chrono::milliseconds timeout{600'000};
  std::string interface = "";   // with this address, overrides `address`; empty: none
  C10dGroupOptions group = {};  // without its `split`
};

// Connects the ranks. Collective. Throws an Error that names rank and address if the ranks do not
// connect in time.
std::unique_ptr<C10dGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, const GlooOptions& options);

}  // namespace zeroth::comm
