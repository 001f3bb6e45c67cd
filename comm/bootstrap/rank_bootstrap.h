// The bootstrap: how ranks find each other before they form a group.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "base/machine/file_descriptor.h"
#include "comm/bootstrap/agree_on_attempt.h"
#include "comm/bootstrap/rank_env.h"

namespace zeroth::comm {

struct RankBootstrap {
  // Key-value store through which ranks exchange values.
  c10::intrusive_ptr<c10d::Store> store;
  std::string run;            // unique among the runs of this user and node; same on all ranks
  bool open_to_all;           // strangers can write what is read from `store`
  bool served_by_rank_0;      // rank 0 must outlive the other ranks' use of the store
  AgreedAttempt agreed = {};  // set if elastic agents count restarts (env.agent_restart_counts)
};

// Bootstraps the ranks. Ranks of `zeroth` use memory that their launcher holds, without a port.
// Others use MASTER_ADDR:MASTER_PORT, where rank 0 listens at that address only, or torchrun's
// agent does. Throws an Error that names rank, address and port if that does not succeed within
// env.timeout.
RankBootstrap bootstrap_ranks(const RankEnv& env);

// Bootstraps the ranks if elastic agents count restarts (env.agent_restart_counts), so that
// make_mesh need not do it, and sets env.attempt to what all ranks have agreed on. Does nothing
// otherwise. Blocks until all ranks have joined. Throws an Error like bootstrap_ranks().
void resolve_attempt(RankEnv& env);

// Returns a socket that listens on `port` of `address` (a number or a name of this node) only.
// Throws an Error that names both.
FileDescriptor listen_at(const std::string& address, int port);

}  // namespace zeroth::comm
