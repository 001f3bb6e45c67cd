// Where ranks meet before they are a group.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "base/file_descriptor.h"
#include "comm/rank_env.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

struct RankBootstrap {
  // Where ranks leave each other values by key, as c10d has it.
  c10::intrusive_ptr<c10d::Store> store;
  std::string run;        // names the run among those of this user and machine; same on all ranks
  bool open_to_all;       // strangers may write what is read from `store`
  bool served_by_rank_0;  // rank 0 has to outlive what the others ask the key store for
};

// Ranks of `zeroth` meet in memory that their launcher holds: there is no port. Others meet at
// MASTER_ADDR:MASTER_PORT, where rank 0 listens at that address only, or torchrun's agent does.
// Throws an Error that names rank, address and port when that does not succeed in env.timeout.
RankBootstrap bootstrap_ranks(const RankEnv& env);

// Where elastic agents count rounds (env.agent_restart_counts), and only there: the ranks meet,
// which make_mesh then need not do, and env.attempt becomes what all of them have agreed on. Blocks
// for the others. Throws an Error as bootstrap_ranks() does.
void resolve_attempt(RankEnv& env);

// A socket that listens on `port` of `address` (a number or a name of this machine) and of nothing
// else. Throws an Error that names both.
FileDescriptor listen_at(const std::string& address, int port);

}  // namespace zeroth::comm
