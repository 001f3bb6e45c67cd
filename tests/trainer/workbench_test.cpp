#include "tests/trainer/workbench.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "base/error.h"

namespace zeroth::trainer::workbench_test {
namespace {

// One that has ended and that nobody has asked for yet counts as dead.
bool is_alive(int process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/status");
  return has(status, "State:") && !has(status, "State:\tZ");
}

}  // namespace

TEST_CASE("a command that does not end fails its test, with its last words and nothing left") {
  const Workbench bench;
  const auto message = message_of<Error>([&] {
    bench.shell("echo one; echo two >&2; sleep 600 & echo $! > sleeper; wait",
                std::chrono::seconds(5));
  });
  CHECK(has(message, "killed after 5 s: echo one; "));
  CHECK(has(message, "its output ends:\none\n\ntwo\n"));
  const int sleeper = std::stoi(bench.read("sleeper"));
  for (int tick = 0; tick < 6000 && is_alive(sleeper); ++tick) ::usleep(10000);
  CHECK_FALSE(is_alive(sleeper));
}

}  // namespace zeroth::trainer::workbench_test
