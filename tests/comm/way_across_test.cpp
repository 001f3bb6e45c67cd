#include "comm/way_across.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "comm/bootstrap.h"
#include "comm/host_address.h"

namespace zeroth::comm {

TEST_CASE("an address of this machine has an interface, and no other one has") {
  CHECK(interface_of("127.0.0.1") == "lo");
  CHECK(interface_of("192.0.2.7") == "");
  CHECK(interface_of("no address") == "");
}

TEST_CASE("the way to other machines is the interface that was named, or that of the route") {
  RankEnv env;
  env.master_addr = "localhost";
  CHECK(way_across(env, false) == "lo");
  CHECK(way_across(env, true) == "");  // NCCL chooses by itself
  env.master_addr = "192.0.2.7";       // by the default route, if there is one
  const std::string own = address_towards("127.0.0.1", 1);
  CHECK(way_across(env, false) == (is_loopback(own) ? "" : interface_of(own)));
  env.master_addr = "no such name.invalid";
  CHECK(way_across(env, false) == "");
  env.interface = "eth7";
  CHECK(way_across(env, false) == "eth7");
  CHECK(way_across(env, true) == "=eth7");
  env.nccl_interface = "=ib0";
  CHECK(way_across(env, true) == "=ib0");
}

TEST_CASE("NCCL is told the interface that the user has named, unless the user has told it one") {
  ::unsetenv("NCCL_SOCKET_IFNAME");
  RankEnv env;
  set_nccl_interface(env);
  CHECK(std::getenv("NCCL_SOCKET_IFNAME") == nullptr);
  ::setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
  env.interface = "eth7";
  set_nccl_interface(env);
  CHECK(std::getenv("NCCL_SOCKET_IFNAME") == std::string("ib0"));
  ::unsetenv("NCCL_SOCKET_IFNAME");
  set_nccl_interface(env);
  CHECK(std::getenv("NCCL_SOCKET_IFNAME") == std::string("=eth7"));
  ::unsetenv("NCCL_SOCKET_IFNAME");
}

}  // namespace zeroth::comm
