#include "launcher/machine/address.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::tcp;

// The system binds to no address but its own.
bool is_own(boost::asio::io_context& io, const boost::asio::ip::address& address) {
  tcp::acceptor probe(io);
  const tcp::endpoint endpoint(address, 0);
  boost::system::error_code error;
  probe.open(endpoint.protocol(), error);
  if (!error) probe.bind(endpoint, error);
  return !error;
}

}  // namespace

void check_master_addr(const std::string& address) {
  boost::asio::io_context io;
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(address, "", error);
  if (error)
    throw Error("--master_addr {} cannot be resolved: {}", shortened(address), error.message());
  const auto own = [&](const auto& entry) { return is_own(io, entry.endpoint().address()); };
  if (std::any_of(found.begin(), found.end(), own)) return;
  throw Error(
      "--master_addr {} is not an address of this machine, where all ranks run; leave it out for "
      "127.0.0.1",
      shortened(address));
}

}  // namespace zeroth::launcher
