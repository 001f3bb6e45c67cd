#include "launcher/machine/address.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>

#include "tests/launcher/launched.h"

namespace zeroth::launcher {

TEST_CASE("addresses and names of this machine are accepted") {
  std::array<char, 256> host{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  for (const std::string& address :
       std::vector<std::string>{"127.0.0.1", "127.0.0.7", "localhost", host.data()}) {
    CAPTURE(address);
    CHECK_NOTHROW(check_master_addr(address));
  }
}

TEST_CASE("a master address of another machine is refused before any rank starts") {
  const auto result =
      run_zeroth({"--num_gpus=2", "--master_addr", "192.0.2.1", rank_program(), "env", "RANK"});
  CHECK(result.status == 1);
  CHECK(result.out.empty());
  CHECK(result.err ==
        "zeroth: error: --master_addr 192.0.2.1 is not an address of this machine, where all ranks "
        "run; leave it out for 127.0.0.1\n");
  const auto unknown = run_zeroth({"--master_addr", "no.such.host.invalid", "true"});
  CHECK(unknown.status == 1);
  CHECK(unknown.err.starts_with(
      "zeroth: error: --master_addr no.such.host.invalid cannot be resolved: "));
}

}  // namespace zeroth::launcher
