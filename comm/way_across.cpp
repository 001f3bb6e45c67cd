#include "comm/way_across.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "base/printable.h"
#include "comm/bootstrap.h"
#include "comm/host_address.h"

namespace zeroth::comm {
namespace {

std::string text_of(const sockaddr& address) {
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int error =
      ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text.data() : "";
}

}  // namespace

std::string interface_of(const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (text_of(*entry->ifa_addr) == address) return entry->ifa_name;
  }
  return "";
}

std::string way_across(const RankEnv& env, bool by_nccl) {
  if (by_nccl) return shortened(env.nccl_interface.value_or(""));
  if (env.interface) return shortened(*env.interface);
  const std::string& master = env.meeting ? "127.0.0.1" : env.master_addr;
  if (is_loopback(master)) return interface_of(master == "localhost" ? "127.0.0.1" : master);
  try {
    return interface_of(address_towards(master, env.master_port));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace zeroth::comm
