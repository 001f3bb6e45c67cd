#include "launcher/machine/local_addresses.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>

namespace zeroth::launcher::this_machine_test {

TEST_CASE("this machine is known by localhost, its name and its addresses") {
  std::array<char, 256> name{};
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  for (const std::string& host : {std::string("localhost"), std::string("LocalHost"),
                                  std::string("127.0.0.1"), std::string(name.data())}) {
    CAPTURE(host);
    CHECK(is_this_machine(host));
  }
}

TEST_CASE("other addresses, names that nobody has and another user's login are not") {
  for (const char* host : {"192.0.2.1", "2001:db8::1", "no-such-host.invalid", "root@localhost"}) {
    CAPTURE(host);
    CHECK_FALSE(is_this_machine(host));
  }
}

TEST_CASE("the system tells its own addresses") {
  CHECK(is_local_address(boost::asio::ip::make_address("127.0.0.1")));
  CHECK_FALSE(is_local_address(boost::asio::ip::make_address("192.0.2.1")));
}

}  // namespace zeroth::launcher::this_machine_test
