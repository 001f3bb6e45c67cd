#include "comm/way_across.h"

#include <cstdlib>

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

std::string address_across(const RankEnv& env) {
  if (is_loopback(env.master_addr)) return env.master_addr;
  return env.meeting ? "127.0.0.1" : address_towards(env.master_addr, env.master_port);
}

std::string nccl_interface(const RankEnv& env) {
  if (env.nccl_interface) return *env.nccl_interface;
  return env.interface ? "=" + *env.interface : "";
}

void set_nccl_interface(const RankEnv& env) {
  const std::string interface = nccl_interface(env);
  if (!interface.empty()) ::setenv("NCCL_SOCKET_IFNAME", interface.c_str(), 0);
}

std::string way_across(const RankEnv& env, bool by_nccl) {
  if (by_nccl) return shortened(nccl_interface(env));
  if (env.interface) return shortened(*env.interface);
  try {
    const std::string address = address_across(env);
    return interface_of(address == "localhost" ? "127.0.0.1" : address);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace zeroth::comm
