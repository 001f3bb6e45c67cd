// zeroth as the first process of a container, where signals without a handler mean nothing and
// orphans have no other parent. `unshare` makes a namespace of process ids; its own end passes on
// the status of what runs there.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::pid_one_test {
namespace {

using Words = std::vector<std::string>;

// Mounting needs root, a user's own namespace gives it where the kernel allows that.
Words inside(Words program) {
  Words words = {"unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"};
  if (::geteuid() != 0) words.insert(words.end(), {"--user", "--map-root-user"});
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

bool has_namespaces() {
  const bool has = run_program(inside({"true"})).status == 0;
  if (!has) MESSAGE("not run: no namespace of process ids can be made");
  return has;
}

Words zeroth(Words words) {
  words.insert(words.begin(), ZEROTH_BIN_DIR "/zeroth");
  return inside(words);
}

// The child of `unshare`: process 1 of the namespace.
pid_t first_process(pid_t unshare) {
  pid_t child = 0;
  eventually([&] {
    const std::string children = read_text(fmt::format("/proc/{0}/task/{0}/children", unshare));
    child = children.empty() ? 0 : std::stoi(children);
    return child > 0;
  });
  return child;
}

}  // namespace

TEST_CASE("as process 1 zeroth ends with its rank's exit code") {
  if (!has_namespaces()) return;
  CHECK(run_program(zeroth({"--num_gpus=2", rank_program(), "except", "1", "exit", "7"})).status ==
        7);
  CHECK(run_program(zeroth({rank_program(), "raise", "9"})).status == 137);
  CHECK(run_program(zeroth({rank_program(), "env", "RANK"})).out == "RANK=0\n");
}

TEST_CASE("as process 1 zeroth forwards SIGTERM, and what ranks left behind ends with it") {
  if (!has_namespaces()) return;
  LaunchedProcess run(LaunchedProcess::Program{zeroth({rank_program(), "brood", "finish", "100"})});
  const auto pids = run.wait_for_pids(4);
  ::kill(first_process(run.pid()), SIGTERM);
  const auto result = run.wait();
  CHECK(result.status == 143);
  CHECK(result.out == "saved\n");
}

TEST_CASE("as process 1 zeroth ends by SIGTERM while it waits for a name") {
  if (!has_namespaces()) return;
  LaunchedProcess run(
      LaunchedProcess::Program{zeroth({rank_program(), "env", "RANK"})},
      {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "no.such.invalid"}});
  run.wait_for_words("rank 0's host no.such.invalid is not known yet");
  ::kill(first_process(run.pid()), SIGTERM);
  CHECK(run.wait().status == 143);
}

}  // namespace zeroth::launcher::pid_one_test
