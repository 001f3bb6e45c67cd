#include "launcher/machine/this_machine.h"

#include <strings.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/machine/machine_id.h"

namespace zeroth::launcher {
namespace {

using boost::asio::ip::tcp;

bool same_name(const std::string& left, const std::string& right) {
  return ::strcasecmp(left.c_str(), right.c_str()) == 0;
}

}  // namespace

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
    if (same_name(host, name)) return true;
  boost::asio::io_context io;
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(host, "", error);
  return !error && std::any_of(found.begin(), found.end(), [](const auto& entry) {
    return is_local_address(entry.endpoint().address());
  });
}

}  // namespace zeroth::launcher
