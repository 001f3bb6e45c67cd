#include "comm/bootstrap/host_address.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "comm/bootstrap/rank_env.h"

namespace zeroth::comm {
namespace {

// An address for documentation (RFC 5737): no machine has it, so the default route is used.
constexpr const char* kAnywhere = "192.0.2.1";

std::optional<std::string> numeric_address(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return std::nullopt;
  return text.data();
}

std::optional<std::string> find_source_address(const addrinfo& peer) {
  const FileDescriptor fd(::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0 || ::connect(fd.get(), peer.ai_addr, peer.ai_addrlen) != 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  return numeric_address(reinterpret_cast<sockaddr&>(own), size);
}

std::optional<std::string> find_source_address(const std::string& peer, int port) {
  const Addresses found = resolve_master(peer, port, SOCK_DGRAM);
  std::optional<std::string> source;
  for (const addrinfo* entry = found.get(); entry != nullptr && !source; entry = entry->ai_next)
    source = find_source_address(*entry);
  return source;
}

}  // namespace

Addresses resolve_master(const std::string& name, int port, int socket_type) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw Error("MASTER_ADDR={}: {}", name, gai_strerror(error));
  return {found, &freeaddrinfo};
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    throw Error("cannot get the addresses of this machine: {}", system_reason(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (auto text = numeric_address(*entry->ifa_addr, size))
      found.push_back({entry->ifa_name, *text});
  }
  return found;
}

std::string address_of_interface(const std::string& interface) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.interface == interface) return one.address;
  throw Error("interface {} has no address on this machine", printable(interface));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

std::string source_address(const std::string& peer, int port) {
  const auto source = find_source_address(peer, port);
  if (!source)
    throw Error("MASTER_ADDR={}: this machine has no route to it: {}", peer, system_reason(errno));
  if (!is_loopback(*source)) return *source;
  return find_source_address(kAnywhere, port).value_or(*source);
}

std::string reachable_address(const std::string& master, int port) {
  if (is_loopback(master)) return master;
  const auto source = find_source_address(master, port);
  if (!source || !is_loopback(*source)) return master;
  return find_source_address(kAnywhere, port).value_or(master);
}

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
