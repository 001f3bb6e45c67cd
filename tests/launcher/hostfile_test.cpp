#include "launcher/backends/hostfile.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::hostfile_test {
namespace {

std::string error_of(std::string_view text) {
  return message_of<Error>([&] { parse_hostfile(text, "hosts"); });
}

}  // namespace

TEST_CASE("a hostfile is DeepSpeed's: hosts with their slots, comments and blank lines") {
  const auto hosts = parse_hostfile(
      "# four hosts\n"
      "worker-0 slots=16\n"
      "\n"
      "   # with blanks before it\n"
      "worker-1\tslots=2  # behind the number\r\n"
      "  worker_2.cluster.local   slots=1 \n"
      "10.0.0.7 slots=007#as near as this",
      "hosts");
  CHECK(hosts == std::vector<HostEntry>{{"worker-0", 16, 2},
                                        {"worker-1", 2, 5},
                                        {"worker_2.cluster.local", 1, 6},
                                        {"10.0.0.7", 7, 7}});
}

TEST_CASE("a host may be an IPv6 address, and have a user") {
  const auto hosts = parse_hostfile(
      "::1 slots=1\n[fe80::1%eth0] slots=2\nalice@worker-0 slots=3\nbob@[2001:db8::7] slots=4\n",
      "hosts");
  CHECK(hosts == std::vector<HostEntry>{{"::1", 1, 1},
                                        {"fe80::1%eth0", 2, 2},
                                        {"alice@worker-0", 3, 3},
                                        {"bob@2001:db8::7", 4, 4}});
}

TEST_CASE("each bad line is refused with its number") {
  CHECK(error_of("this is bad slots=1") == "hosts: line 1: 'is' instead of slots=N");
  CHECK(error_of("\nworker-0 slots=4\nworker-1\n") ==
        "hosts: line 3: slots=N is missing; expected 'HOST slots=N'");
  CHECK(error_of("worker-0 slots=") == "hosts: line 1: slots=: must be a whole number");
  CHECK(error_of("worker-0 slots=four") == "hosts: line 1: slots=four: must be a whole number");
  CHECK(error_of("worker-0 slots=4.5") == "hosts: line 1: slots=4.5: must be a whole number");
  CHECK(error_of("worker-0 slots=-1") == "hosts: line 1: slots=-1: must be a whole number");
  CHECK(error_of("worker-0 slots=+1") == "hosts: line 1: slots=+1: must be a whole number");
  CHECK(error_of("worker-0 slots=0") == "hosts: line 1: slots=0: must be from 1 to 1024");
  CHECK(error_of("worker-0 slots=1025") == "hosts: line 1: slots=1025: must be from 1 to 1024");
  CHECK(error_of("worker-0 slots=99999999999") ==
        "hosts: line 1: slots=99999999999: must be from 1 to 1024");
  CHECK(
      error_of("worker-0 slots=4 max_slots=8") ==
      "hosts: line 1: unexpected 'max_slots=8' after slots=4: only a comment (#) is allowed there");
  CHECK(error_of("worker-0 slots = 4") == "hosts: line 1: 'slots' instead of slots=N");
}

TEST_CASE("a host that stands twice is refused, also in another spelling") {
  CHECK(error_of("worker-0 slots=4\n\nworker-0 slots=4\n") ==
        "hosts: line 3: duplicate host 'worker-0': already in line 1");
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"Worker-0", "worker-0"},
                                                        {"alice@worker-0", "worker-0"},
                                                        {"::1", "[0:0:0:0:0:0:0:1]"},
                                                        {"fe80::1%eth0", "FE80::1%eth0"}}) {
    CAPTURE(first);
    CHECK(error_of(first + " slots=1\n" + second + " slots=1\n").find("already in line 1") !=
          std::string::npos);
  }
  CHECK_NOTHROW(parse_hostfile("fe80::1%eth0 slots=1\nfe80::1%eth1 slots=1", "hosts"));
}

TEST_CASE("what no host can be called is refused: names reach the command line of ssh") {
  const std::string label(64, 'a');
  for (const std::string& host : {std::string("-oProxyCommand=id"),
                                  std::string("a;id"),
                                  std::string("$(id)"),
                                  std::string("a`id`"),
                                  std::string("a,b"),
                                  std::string("a[1-3]"),
                                  std::string("^hosts"),
                                  std::string("a/b"),
                                  std::string("a\\b"),
                                  std::string("'a'"),
                                  std::string("\"a\""),
                                  std::string("a|b"),
                                  std::string("a&b"),
                                  std::string("a=b"),
                                  std::string("a%n"),
                                  std::string("ssh:a"),
                                  std::string("a:22"),
                                  std::string("@a"),
                                  std::string("a@"),
                                  std::string("-x@a"),
                                  std::string("a@-b"),
                                  std::string("a b@c"),
                                  std::string("a@b@c"),
                                  std::string(".a"),
                                  std::string("a..b"),
                                  std::string("\xc3\xa4"),
                                  std::string("a\0b", 3),
                                  std::string("fe80::1%"),
                                  std::string("fe80::1%-x"),
                                  std::string("fe80::1%$(id)"),
                                  std::string("1::2::3"),
                                  std::string("[::1"),
                                  std::string("[worker-0"),
                                  label,
                                  label.substr(1) + "." + label.substr(1) + "." + label.substr(1) +
                                      "." + label.substr(1) + ".com"}) {
    CAPTURE(host);
    const std::string said = error_of(host + " slots=1");
    CHECK(said.starts_with("hosts: line 1: "));
    CHECK_FALSE(host_error(host).empty());
  }
  CHECK(error_of("-oProxyCommand=id slots=1") ==
        "hosts: line 1: '-oProxyCommand=id' is neither a host's name nor an address");
  CHECK(error_of("-x@a slots=1") == "hosts: line 1: invalid user '-x' in '-x@a'");
  CHECK(host_error("worker-0.") == "");
}

TEST_CASE("good lines do not excuse bad ones, and all bad ones are told") {
  CHECK(error_of("worker-0 slots=4\nthis is bad\nworker-1 slots=0\n") ==
        "hosts: line 2: 'is' instead of slots=N\n  hosts: line 3: slots=0: must be from 1 to 1024");
  const std::string said = error_of(std::string(100'000, 'x') + "\n" + std::string(100'000, '\n'));
  CHECK(said.size() < 400);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "bad line\n";
  CHECK(error_of(many).ends_with("and 980 more"));
}

TEST_CASE("a file without hosts is refused, and one with too many") {
  for (const char* text : {"", "\n\n", "# nothing\n"})
    CHECK(error_of(text) == "hosts: contains no hosts; expected 'HOST slots=N' in each line");
  std::string many;
  for (int i = 0; i < 8193; ++i) many += fmt::format("h{} slots=1\n", i);
  CHECK(error_of(many) == "hosts: 8193 hosts, at most 8192 are supported");
}

TEST_CASE("the file is read from disk, regular and of bounded size") {
  const TempFolder directory;
  const auto path = directory.write("hosts", "worker-0 slots=2\n");
  CHECK(read_hostfile(path) == std::vector<HostEntry>{{"worker-0", 2, 1}});
  const auto error = [](const std::filesystem::path& file) {
    return message_of<Error>([&] { read_hostfile(file); });
  };
  CHECK(error(directory / "none").find("No such file") != std::string::npos);
  CHECK(error(directory.path()).find(directory.path().string()) != std::string::npos);
  CHECK(error("/dev/null").find("/dev/null") != std::string::npos);
  const auto large = directory.write("large", std::string((size_t{1} << 20) + 1, '\n'));
  CHECK(error(large).find("1048577") != std::string::npos);
}

}  // namespace zeroth::launcher::hostfile_test
