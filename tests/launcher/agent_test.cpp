#include "launcher/cluster/agent.h"

#include <doctest/doctest.h>

#include <csignal>
#include <optional>
#include <thread>

#include "launcher/transport/listener.h"
#include "launcher/transport/messages.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::agent_test {
namespace {

using std::chrono::milliseconds;

const StartRanks kStart{6, 2, 8, 3, 4, "::1", 29500, 0, std::nullopt};

// A launcher of the test's own, that says what the test wants.
class TestLauncher {
 public:
  TestLauncher()
      : listener_(io_, {boost::asio::ip::make_address("127.0.0.1")}, HmacKey(secret_),
                  [this](std::shared_ptr<Channel> channel) {
                    agent_ = std::move(channel);
                    agent_->start({[this](std::string_view bytes) { on_message(decode(bytes)); },
                                   [this](const std::string&) { io_.stop(); }});
                  }),
        agent_process_({"agent", "--launcher", listener_.endpoints(), "--node", "4", "--secret-env",
                        "RUN_SECRET"},
                       {{"RUN_SECRET", secret_}}) {}
  ~TestLauncher() {
    if (agent_) agent_->close();
  }

  // Takes what the agent says until it is such a message.
  template <typename Kind>
  Kind wait_for() {
    std::optional<Kind> found;
    on_message_ = [&](const Message& message) {
      if (!std::holds_alternative<Kind>(message)) return;
      found = std::get<Kind>(message);
      io_.stop();
    };
    io_.restart();
    io_.run_for(std::chrono::minutes(1));
    REQUIRE(found);
    return *found;
  }

  // Takes all that the agent says until it hangs up; how many heartbeats that were.
  int count_heartbeats() {
    int count = 0;
    on_message_ = [&](const Message& message) {
      if (std::holds_alternative<Heartbeat>(message)) ++count;
    };
    io_.restart();
    io_.run_for(std::chrono::minutes(1));
    return count;
  }

  void send(const Message& message) { agent_->send(encode(message)); }
  void start_ranks(const RemoteJob& job) {
    wait_for<Hello>();
    send(job);
    wait_for<Ready>();
    send(kStart);
  }
  void hang_up() { agent_->close(); }
  LaunchedProcess& process() { return agent_process_; }

 private:
  void on_message(const Message& message) {
    if (on_message_) on_message_(message);
  }

  std::string secret_ = make_secret();
  boost::asio::io_context io_;
  Listener listener_;
  std::shared_ptr<Channel> agent_;
  std::function<void(const Message&)> on_message_;
  LaunchedProcess agent_process_;
};

RemoteJob job_of(const std::vector<std::string>& mode) {
  RemoteJob job;
  job.command = {rank_program()};
  job.command.insert(job.command.end(), mode.begin(), mode.end());
  job.working_directory = "/";
  job.slots = {0, 1};
  job.failure_grace = milliseconds(300);
  return job;
}

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an agent says who it is, starts its ranks and tells of their lines and ends") {
  TestLauncher launcher;
  const Hello hello = launcher.wait_for<Hello>();
  CHECK(hello.node == 4);
  CHECK(run_zeroth({"--version"}).out == "zeroth " + hello.version + "\n");
  launcher.send(job_of({"env", "RANK", "RUN_SECRET"}));
  const Ready ready = launcher.wait_for<Ready>();
  CHECK(ready.accelerator == "cpu");
  CHECK(ready.master_port > 0);
  launcher.send(kStart);
  const OutputLines lines = launcher.wait_for<OutputLines>();
  CHECK(lines.lines.front().rank >= 6);
  launcher.send(Drain{});
  launcher.wait_for<Drained>();
  launcher.hang_up();
  const auto result = launcher.process().wait();
  CHECK(result.status == 0);
  CHECK(result.out == "");
  CHECK(result.err == "");
}

TEST_CASE("an agent whose launcher is gone ends its ranks, also stubborn ones, and itself") {
  TestLauncher launcher;
  launcher.start_ranks(job_of({"stubborn"}));
  const auto pids = launcher.process().wait_for_pids(2);
  launcher.hang_up();
  const auto result = launcher.process().wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err, "zeroth agent: the launcher is lost: the connection ended"));
  CHECK(none_alive(pids));
}

TEST_CASE("an agent whose launcher is silent does the same when its time is over") {
  TestLauncher launcher;  // it never sends a heartbeat
  RemoteJob job = job_of({"sleep"});
  job.liveness_timeout = milliseconds(1500);  // an agent has four times the patience
  launcher.start_ranks(job);
  const auto pids = launcher.process().wait_for_pids(2);
  CHECK(launcher.count_heartbeats() > 4 * 4);  // several in the time that a launcher waits for one
  const auto result = launcher.process().wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err, "the launcher is lost: no heartbeat for 6 s; terminating its ranks"));
  CHECK(none_alive(pids));
}

TEST_CASE("an agent does not miss a launcher that is stopped, until that goes on") {
  TestLauncher launcher;
  RemoteJob job = job_of({"sleep"});
  job.liveness_timeout = milliseconds(750);
  launcher.start_ranks(job);
  launcher.send(Suspend{true});
  std::this_thread::sleep_for(milliseconds(4000));
  CHECK(is_alive(launcher.process().pid()));
  launcher.send(Suspend{false});
  const auto result = launcher.process().wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err, "the launcher is lost: no heartbeat for 3 s; terminating its ranks"));
}

TEST_CASE("an agent believes no launcher that says what none says") {
  TestLauncher launcher;
  launcher.wait_for<Hello>();
  launcher.send(Drained{});
  const auto result = launcher.process().wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err, "the launcher has released this host: unexpected message"));
}

TEST_CASE("what a host lacks comes at once") {
  TestLauncher launcher;
  launcher.wait_for<Hello>();
  RemoteJob job = job_of({});
  job.command = {"no_such_program"};
  job.working_directory = "/no/such/folder";
  job.env = {{"DEEPSPEED_TIMEOUT", "soon"}};
  launcher.send(job);
  const Problems problems = launcher.wait_for<Problems>();
  REQUIRE(problems.texts.size() == 3);
  CHECK(contains(problems.texts[0], "/no/such/folder"));
  CHECK(contains(problems.texts[1], "'no_such_program' was not found"));
  CHECK(contains(problems.texts[2], "DEEPSPEED_TIMEOUT is 'soon'"));
}

}  // namespace zeroth::launcher::agent_test
