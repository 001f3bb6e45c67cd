#include "comm/bootstrap/host_address.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "comm/bootstrap/rank_env.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::host_address_test {
namespace {

// Of this machine, towards an address that is for documentation only; "" without a default route.
std::string address_by_default_route() {
  try {
    return source_address("192.0.2.7", 29500);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("this machine has no route to it") != std::string::npos);
    return "";
  }
}

}  // namespace

TEST_CASE("towards this machine goes an address that others may reach, if there is one") {
  const std::string address = source_address("127.0.0.1", 29500);
  CHECK_FALSE(address.empty());
  CHECK(source_address("localhost", 29500) == address);
  const std::string by_route = address_by_default_route();
  CHECK((by_route == address || (by_route.empty() && is_loopback(address))));
}

TEST_CASE("a master is reached where it is told to be, unless that is a loopback address here") {
  for (const char* reported : {"127.0.0.1", "localhost", "127.0.1.1"})
    CHECK(reachable_address(reported, 29500) == reported);
  const std::string own = address_by_default_route();
  if (!own.empty()) CHECK(reachable_address(own, 29500) == own);
}

TEST_CASE("a master that has no address is named") {
  CHECK(message_of<Error>([] {
          source_address("no such name.invalid", 1);
        }).starts_with("MASTER_ADDR=no such name.invalid: "));
}

TEST_CASE("loopback addresses are known") {
  for (const char* address : {"localhost", "127.0.0.1", "127.0.1.1", "::1"})
    CHECK(is_loopback(address));
  for (const char* address : {"10.0.0.1", "node1", "::2", ""}) CHECK_FALSE(is_loopback(address));
}

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

TEST_CASE("NCCL gets the interface that the user names, unless its own variable names one") {
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

}  // namespace zeroth::comm::host_address_test
