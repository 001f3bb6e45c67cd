#include "launcher/machine/local_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <strings.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"
#include "base/machine/timer.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::address;
using boost::asio::ip::tcp;
using boost::asio::ip::udp;

constexpr const char* kAnyPort = "9";  // nothing is sent to it
constexpr std::chrono::milliseconds kPause{250};

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

// Listens briefly on every address, which also fails if the port is in use at a single address.
boost::system::error_code try_listen(const tcp& protocol, int port, int& bound_port) {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io);
  boost::system::error_code error;
  acceptor.open(protocol, error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && protocol == tcp::v6()) acceptor.set_option(boost::asio::ip::v6_only(false), error);
  if (!error) acceptor.bind({protocol, static_cast<unsigned short>(port)}, error);
  if (!error) acceptor.listen(1, error);
  if (!error) bound_port = acceptor.local_endpoint(error).port();
  return error;
}

bool means_no_ipv6(const boost::system::error_code& error) {
  namespace errc = boost::system::errc;
  return error == errc::address_family_not_supported || error == errc::address_not_available ||
         error == errc::protocol_not_supported;
}

// Resolves a number or a name, for which name servers may take some seconds.
tcp::resolver::results_type resolve(const std::string& host, boost::system::error_code& error) {
  boost::asio::io_context io;
  return tcp::resolver(io).resolve(host, "", error);
}

bool has_local_address(const tcp::resolver::results_type& found) {
  return std::any_of(found.begin(), found.end(), [](const auto& entry) {
    return is_local_address(entry.endpoint().address());
  });
}

// Returns the address of this machine from which `host` is reached, if one of its addresses is
// local.
std::optional<address> local_address_of(const std::string& host, boost::asio::io_context& io) {
  const std::string name = host.substr(host.rfind('@') + 1);
  boost::system::error_code error;
  std::optional<address> local;
  for (const auto& entry : udp::resolver(io).resolve(name, kAnyPort, error))
    if (!local) local = local_address_for(io, entry.endpoint());
  return local;
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
    const auto local = local_address_of(host, io);
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

void wait_for_address(const std::string& address, std::chrono::milliseconds limit,
                      const std::function<void(const std::string& line)>& log) {
  const auto begin = std::chrono::steady_clock::now();
  SlowWait slow(std::chrono::milliseconds(0));  // logged at once
  while (true) {
    boost::system::error_code error;
    resolve(address, error);
    if (!error) return;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    if (waited > limit)
      throw Error("rank 0's host {} cannot be resolved: {}", shortened(address), error.message());
    if (slow.due(waited))
      log(fmt::format("rank 0's host {} is not known yet ({}): waiting up to {} s",
                      shortened(address), error.message(),
                      std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
    std::this_thread::sleep_for(kPause);
  }
}

int resolve_master_port(std::optional<int> port) {
  int bound_port = 0;
  boost::system::error_code error = try_listen(tcp::v6(), port.value_or(0), bound_port);
  if (means_no_ipv6(error)) error = try_listen(tcp::v4(), port.value_or(0), bound_port);
  if (!error) return bound_port;
  if (!port) throw Error("no free port for rank 0: {}", system_reason(error.value()));
  if (error == boost::asio::error::address_in_use)
    throw Error("--master_port {} is taken by another program; leave it out for a free one", *port);
  throw Error("--master_port {} cannot be used: {}", *port, system_reason(error.value()));
}

void check_master_addr(const std::string& address, bool all_ranks_here) {
  boost::system::error_code error;
  const auto found = resolve(address, error);
  if (error)
    throw Error("--master_addr {} cannot be resolved: {}", shortened(address), error.message());
  if (has_local_address(found)) return;
  throw Error(
      "--master_addr {} is not an address of this machine, where {}", shortened(address),
      all_ranks_here ? "all ranks run; leave it out for 127.0.0.1" : "rank 0 runs: this is host 0");
}

bool is_local_address(const boost::asio::ip::address& address) {
  boost::asio::io_context io;
  tcp::acceptor probe(io);
  const tcp::endpoint endpoint(address, 0);
  boost::system::error_code error;
  probe.open(endpoint.protocol(), error);
  if (!error) probe.bind(endpoint, error);
  return !error;
}

bool is_this_machine(const std::string& host) {
  if (host.find('@') != std::string::npos) return false;
  const std::string own = machine_name();
  const std::string short_own = own.substr(0, own.find('.'));
  for (const std::string& name : {std::string("localhost"), own, short_own})
    if (::strcasecmp(host.c_str(), name.c_str()) == 0) return true;
  boost::system::error_code error;
  const auto found = resolve(host, error);
  return !error && has_local_address(found);
}

}  // namespace zeroth::launcher
