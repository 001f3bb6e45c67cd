#include "comm/nodes/inter_node_interface.h"

#include <cstdlib>

#include "base/error.h"
#include "base/text/printable.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/rank_env.h"

namespace zeroth::comm {

std::string interface_with_address(const std::string& address) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.address == address) return one.interface;
  return "";
}

std::string inter_node_address(const RankEnv& env) {
  if (is_loopback(env.master_addr)) return env.master_addr;
  return env.bootstrap_ticket ? "127.0.0.1" : source_address(env.master_addr, env.master_port);
}

std::string nccl_interface(const RankEnv& env) {
  if (env.nccl_interface) return *env.nccl_interface;
  return env.interface ? "=" + *env.interface : "";
}

void set_nccl_interface(const RankEnv& env) {
  const std::string interface = nccl_interface(env);
  if (!interface.empty()) ::setenv("NCCL_SOCKET_IFNAME", interface.c_str(), 0);
}

std::string inter_node_interface(const RankEnv& env, bool by_nccl) {
  if (by_nccl) return shortened(nccl_interface(env));
  if (env.interface) return shortened(*env.interface);
  try {
    const std::string address = inter_node_address(env);
    return interface_with_address(address == "localhost" ? "127.0.0.1" : address);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace zeroth::comm
