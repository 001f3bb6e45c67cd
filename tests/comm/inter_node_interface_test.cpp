#include "comm/nodes/inter_node_interface.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/rank_env.h"

namespace zeroth::comm {

TEST_CASE("an address of this machine has an interface, and no other one has") {
  CHECK(interface_with_address("127.0.0.1") == "lo");
  CHECK(interface_with_address("192.0.2.7") == "");
  CHECK(interface_with_address("no address") == "");
}

TEST_CASE("the way to other machines is the interface that was named, or that of the route") {
  RankEnv env;
  env.master_addr = "localhost";
  CHECK(inter_node_interface(env, false) == "lo");
  CHECK(inter_node_interface(env, true) == "");  // NCCL chooses by itself
  env.master_addr = "192.0.2.7";                 // by the default route, if there is one
  const std::string own = source_address("127.0.0.1", 1);
  CHECK(inter_node_interface(env, false) == (is_loopback(own) ? "" : interface_with_address(own)));
  env.master_addr = "no such name.invalid";
  CHECK(inter_node_interface(env, false) == "");
  env.interface = "eth7";
  CHECK(inter_node_interface(env, false) == "eth7");
  CHECK(inter_node_interface(env, true) == "=eth7");
  env.nccl_interface = "=ib0";
  CHECK(inter_node_interface(env, true) == "=ib0");
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
