#include "comm/way_across.h"

#include "base/error.h"
#include "base/printable.h"
#include "comm/bootstrap.h"
#include "comm/host_address.h"

namespace zeroth::comm {

std::string interface_of(const std::string& address) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.address == address) return one.interface;
  return "";
}

std::string way_across(const RankEnv& env, bool by_nccl) {
  if (by_nccl) return shortened(env.nccl_interface.value_or(""));
  if (env.interface) return shortened(*env.interface);
  const std::string& master = env.meeting ? "127.0.0.1" : env.master_addr;
  try {
    if (is_loopback(master)) return interface_of(master == "localhost" ? "127.0.0.1" : master);
    return interface_of(address_towards(master, env.master_port));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace zeroth::comm
