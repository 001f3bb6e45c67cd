#include "launcher/machine/local_addresses.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::local_addresses_test {
namespace {

using boost::asio::ip::address;

std::vector<address> addresses(const std::vector<const char*>& texts) {
  std::vector<address> all;
  for (const char* text : texts) all.push_back(boost::asio::ip::make_address(text));
  return all;
}

}  // namespace

TEST_CASE("hosts on this machine reach it by loopback, and by nothing else") {
  CHECK(local_addresses_for({"127.0.0.1"}).addresses == addresses({"127.0.0.1"}));
  CHECK(local_addresses_for({"127.0.0.1", "someone@127.0.0.1"}).addresses ==
        addresses({"127.0.0.1"}));
  CHECK(local_addresses_for({"127.0.0.1"}).unknown.empty());
}

TEST_CASE("for a host that is not known here all addresses but loopback may be needed") {
  const LocalAddresses own = local_addresses_for({"no-such-host.invalid"});
  CHECK(own.unknown == std::vector<std::string>{"no-such-host.invalid"});
  for (const address& found : own.addresses) CHECK_FALSE(found.is_loopback());
}

TEST_CASE("the master's address is the one by which rank 0's host reached the launcher") {
  CHECK(choose_master_addr(addresses({"10.0.0.2", "10.0.0.3"}),
                           addresses({"10.0.0.1", "10.0.0.1"})) == "10.0.0.2");
}

TEST_CASE("where rank 0 is beside the launcher it is the one at which others reach the launcher") {
  CHECK(choose_master_addr(addresses({"127.0.0.1", "10.0.0.3"}),
                           addresses({"127.0.0.1", "10.0.0.1"})) == "10.0.0.1");
  CHECK(choose_master_addr(addresses({"127.0.0.1", "127.0.0.1"}),
                           addresses({"127.0.0.1", "127.0.0.1"})) == "127.0.0.1");
}

}  // namespace zeroth::launcher::local_addresses_test
