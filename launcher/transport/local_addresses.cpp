#include "launcher/transport/local_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <memory>
#include <optional>

namespace zeroth::launcher {
namespace {

using boost::asio::ip::address;
using boost::asio::ip::udp;

constexpr const char* kAnyPort = "9";  // nothing is sent to it

std::optional<address> local_address_for(boost::asio::io_context& io, const udp::endpoint& host) {
  udp::socket probe(io);
  boost::system::error_code error;
  probe.open(host.protocol(), error);
  if (!error) probe.connect(host, error);
  if (error) return std::nullopt;
  const address local = probe.local_endpoint(error).address();
  return error ? std::nullopt : std::optional(local);
}

std::optional<address> to_address(const sockaddr* sockaddr_entry) {
  if (sockaddr_entry == nullptr) return std::nullopt;
  if (sockaddr_entry->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(sockaddr_entry);
    return boost::asio::ip::address_v4(ntohl(v4->sin_addr.s_addr));
  }
  if (sockaddr_entry->sa_family != AF_INET6) return std::nullopt;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(sockaddr_entry);
  boost::asio::ip::address_v6::bytes_type bytes;
  std::copy(std::begin(v6->sin6_addr.s6_addr), std::end(v6->sin6_addr.s6_addr), bytes.begin());
  const boost::asio::ip::address_v6 found(bytes);
  return found.is_link_local() ? std::nullopt : std::optional<address>(found);
}

}  // namespace

std::vector<address> all_local_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<address> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const auto own = to_address(entry->ifa_addr);
    if (own && !own->is_loopback() && (entry->ifa_flags & IFF_UP) != 0) found.push_back(*own);
  }
  return found;
}

LocalAddresses local_addresses_for(const std::vector<std::string>& hosts) {
  boost::asio::io_context io;
  LocalAddresses own;
  const auto add = [&](const address& found) {
    if (std::find(own.addresses.begin(), own.addresses.end(), found) == own.addresses.end())
      own.addresses.push_back(found);
  };
  for (const std::string& host : hosts) {
    const std::string name = host.substr(host.rfind('@') + 1);
    boost::system::error_code error;
    std::optional<address> local;
    for (const auto& entry : udp::resolver(io).resolve(name, kAnyPort, error))
      if (!local) local = local_address_for(io, entry.endpoint());
    local ? add(*local) : own.unknown.push_back(host);
  }
  if (!own.unknown.empty())
    for (const address& found : all_local_addresses()) add(found);
  return own;
}

std::string choose_master_addr(const std::vector<address>& agent_addresses,
                               const std::vector<address>& launcher_addresses) {
  if (!agent_addresses.front().is_loopback()) return agent_addresses.front().to_string();
  for (const address& seen : launcher_addresses)  // rank 0 is on the launcher's node
    if (!seen.is_loopback()) return seen.to_string();
  return agent_addresses.front().to_string();
}

}  // namespace zeroth::launcher
