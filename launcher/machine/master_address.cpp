#include "launcher/machine/master_address.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <thread>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/slow_wait.h"
#include "base/text/printable.h"
#include "launcher/machine/this_machine.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::tcp;

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

constexpr std::chrono::milliseconds kPause{250};

boost::system::error_code try_resolve(const std::string& address) {
  boost::asio::io_context io;
  boost::system::error_code error;
  tcp::resolver(io).resolve(address, "", error);
  return error;
}

}  // namespace

void wait_for_address(const std::string& address, std::chrono::milliseconds limit,
                      const std::function<void(const std::string& line)>& log) {
  const auto begin = std::chrono::steady_clock::now();
  SlowWait slow(std::chrono::milliseconds(0));  // logged at once
  while (const boost::system::error_code error = try_resolve(address)) {
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
  boost::asio::io_context io;
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(address, "", error);
  if (error)
    throw Error("--master_addr {} cannot be resolved: {}", shortened(address), error.message());
  const auto is_local = [](const auto& entry) {
    return is_local_address(entry.endpoint().address());
  };
  if (std::any_of(found.begin(), found.end(), is_local)) return;
  throw Error(
      "--master_addr {} is not an address of this machine, where {}", shortened(address),
      all_ranks_here ? "all ranks run; leave it out for 127.0.0.1" : "rank 0 runs: this is host 0");
}

}  // namespace zeroth::launcher
