#include "launcher/backends/node_backend.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "launcher/backends/shell_words.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::node_backend_test {
namespace {

constexpr const char* kSecret = "0123456789abcdef-secret";

AgentLaunchRequest two_hosts() {
  AgentLaunchRequest request;
  request.hosts = {{"worker-1", {0, 1}}, {"worker-0", {0, 1}}};
  request.zeroth = "/opt/zeroth/bin/zeroth";
  request.launcher = "10.0.0.1:4000,[fd00::1]:4000";
  request.secret = kSecret;
  request.token = "f00d";
  return request;
}

AgentCommands start(const std::string& backend, const AgentLaunchRequest& request = two_hosts()) {
  return make_agent_commands(find_backend(backend), request);
}

// All commands as a person would see them, a line each.
std::string lines(const std::string& backend, const AgentLaunchRequest& request = two_hosts()) {
  const AgentCommands agents = start(backend, request);
  std::string text;
  for (const auto* commands : {&agents.setup, &agents.agents})
    for (const AgentCommand& command : *commands) text += to_shell_command(command, kSecret) + "\n";
  return text;
}

std::string error_of(const std::string& backend, const AgentLaunchRequest& request = two_hosts()) {
  return message_of<UsageError>([&] { start(backend, request); });
}

std::string output_of(const std::string& command, bool succeeds) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int byte; (byte = std::fgetc(pipe)) != EOF;) out += static_cast<char>(byte);
  CHECK((::pclose(pipe) == 0) == succeeds);
  return out;
}

void write_program(const std::filesystem::path& path, const std::string& script) {
  write_text(path, "#!/bin/sh\n" + script);
  ::chmod(path.c_str(), 0755);
}

// An ssh that logs in nowhere, and a zeroth whose name needs every kind of quote: it shows its
// arguments and the first line of its input.
class Programs {
 public:
  Programs() {
    write_program(directory_ / "ssh",
                  "while [ \"$1\" != -- ] && [ \"$1\" != worker-1 ] && [ \"$1\" != worker-0 ]; do "
                  "shift; done\n"
                  "[ \"$1\" != -- ] || shift\nshift\nexec /bin/sh -c \"$*\"\n");
    std::filesystem::create_directories(odd_folder());
    write_program(odd_folder() / "zeroth",
                  "for word; do printf '<%s>' \"$word\"; done\n"
                  "printf '%s\\n' \"${ZEROTH_RUN_SECRET-unset}\"\n"
                  "case \"$*\" in *--secret-stdin) head -n 1 ;; esac\n");
  }

  std::filesystem::path odd_folder() const {
    return directory_ / "I am 6' \"tall\" $HOME `id` 100%n %h (x2) \\ &;";
  }

  // What a shell makes of the command, where only these programs and the system's are.
  std::string run(const AgentCommand& command, bool succeeds = true) const {
    return output_of("PATH=" + directory_.path().string() + ":/usr/bin:/bin; ZEROTH_RUN_SECRET=" +
                         kSecret + "; " + to_shell_command(command, kSecret) + " 2>&1",
                     succeeds);
  }

 private:
  TempFolder directory_;
};

}  // namespace

TEST_CASE("ssh: a process for each host, with the secret as its input") {
  CHECK(lines("ssh") ==
        "printf '%s\\n' \"$ZEROTH_RUN_SECRET\" | ssh -o BatchMode=yes -o ConnectTimeout=30 -- "
        "worker-1 'exec "
        "/opt/zeroth/bin/zeroth agent --launcher '\\''10.0.0.1:4000,[fd00::1]:4000'\\'' --node 0 "
        "--secret-stdin'\n"
        "printf '%s\\n' \"$ZEROTH_RUN_SECRET\" | ssh -o BatchMode=yes -o ConnectTimeout=30 -- "
        "worker-0 'exec "
        "/opt/zeroth/bin/zeroth agent --launcher '\\''10.0.0.1:4000,[fd00::1]:4000'\\'' --node 1 "
        "--secret-stdin'\n");
  AgentLaunchRequest request = two_hosts();
  request.ssh_port = 2222;
  request.launcher_args = {"-i", "a key"};
  const AgentCommands agents = start("ssh", request);
  REQUIRE(agents.agents.size() == 2);
  CHECK(agents.agents[1].argv ==
        std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-p", "2222", "-i", "a key", "-o",
                                 "ConnectTimeout=30", "--", "worker-0",
                                 "exec /opt/zeroth/bin/zeroth agent --launcher "
                                 "'10.0.0.1:4000,[fd00::1]:4000' --node 1 --secret-stdin"});
  CHECK(agents.agents[1].input == std::string(kSecret) + "\n");
  CHECK(agents.agents[1].env.empty());
  CHECK(agents.agents[1].hosts == std::vector<int>{1});
  CHECK(agents.setup.empty());
  CHECK(agents.cleanup.empty());
}

TEST_CASE("pdsh: one process for all hosts, after ssh has left the secret in a file on each") {
  const std::string setup =
      "printf '%s\\n' \"$ZEROTH_RUN_SECRET\" | ssh -o BatchMode=yes -p 22 -o ConnectTimeout=30 -- "
      "worker-1 'exec "
      "/bin/sh "
      "-c '\\''umask 077 && set -C && cat > /tmp/zeroth-f00d-0'\\'''\n"
      "printf '%s\\n' \"$ZEROTH_RUN_SECRET\" | ssh -o BatchMode=yes -p 22 -o ConnectTimeout=30 -- "
      "worker-0 'exec "
      "/bin/sh "
      "-c '\\''umask 077 && set -C && cat > /tmp/zeroth-f00d-1'\\'''\n";
  AgentLaunchRequest request = two_hosts();
  request.ssh_port = 22;
  request.launcher_args = {"-u", "30"};
  CHECK(
      lines("pdsh", request) ==
      setup +
          "PDSH_RCMD_TYPE=ssh PDSH_SSH_ARGS_APPEND='-o BatchMode=yes -o ConnectTimeout=30 -p 22' "
          "pdsh -S -f 1024 -w "
          "worker-1,worker-0 -u 30 'exec /opt/zeroth/bin/zeroth agent --launcher "
          "'\\''10.0.0.1:4000,[fd00::1]:4000'\\'' --secret-file /tmp/zeroth-f00d-%n --node %n'\n");
  request.pdsh_ssh_args = "-i 'a key'";
  const AgentCommands agents = start("pdsh", request);
  CHECK(agents.agents[0].env[1].second == "-i 'a key' -o BatchMode=yes -o ConnectTimeout=30 -p 22");
  CHECK(agents.agents[0].hosts == std::vector<int>{0, 1});
  CHECK(agents.agents[0].input.empty());
  CHECK(agents.setup[0].argv[6] == "a key");
  REQUIRE(agents.cleanup.size() == 2);
  CHECK(agents.cleanup[1].argv.back() == "exec /bin/sh -c 'rm -f /tmp/zeroth-f00d-1'");
  CHECK(agents.cleanup[1].input.empty());
}

TEST_CASE("MPI: one agent for each host in their order, with the secret by a variable's name") {
  CHECK(
      lines("openmpi") ==
      "ZEROTH_RUN_SECRET=\"$ZEROTH_RUN_SECRET\" mpirun -n 2 --host worker-1,worker-0 --map-by seq "
      "--bind-to none -x ZEROTH_RUN_SECRET /opt/zeroth/bin/zeroth agent --launcher "
      "'10.0.0.1:4000,[fd00::1]:4000' --secret-env ZEROTH_RUN_SECRET\n");
  CHECK(lines("mpich") ==
        "ZEROTH_RUN_SECRET=\"$ZEROTH_RUN_SECRET\" mpirun -n 2 -ppn 1 -genvlist ZEROTH_RUN_SECRET "
        "-hosts worker-1,worker-0 /opt/zeroth/bin/zeroth agent --launcher "
        "'10.0.0.1:4000,[fd00::1]:4000' --secret-env ZEROTH_RUN_SECRET\n");
  CHECK(lines("impi") ==
        "ZEROTH_RUN_SECRET=\"$ZEROTH_RUN_SECRET\" mpirun -n 2 -ppn 1 -genv I_MPI_PIN 0 -genvlist "
        "ZEROTH_RUN_SECRET -hosts worker-1,worker-0 /opt/zeroth/bin/zeroth agent --launcher "
        "'10.0.0.1:4000,[fd00::1]:4000' --secret-env ZEROTH_RUN_SECRET\n");
}

TEST_CASE("a user's arguments stand behind those of DeepSpeed's defaults and before the agent") {
  AgentLaunchRequest request = two_hosts();
  request.launcher_args = {"--mca", "btl_tcp_if_include", "eth1"};
  const auto argv = start("openmpi", request).agents[0].argv;
  CHECK(shell_join(argv).find("--bind-to none --mca btl_tcp_if_include eth1 -x") !=
        std::string::npos);
  CHECK(shell_join(argv).find("eth0") == std::string::npos);
}

TEST_CASE("Slurm: one task for each node, by the rules of DeepSpeed 0.19.8") {
  AgentLaunchRequest request = two_hosts();
  CHECK(
      lines("slurm") ==
      "ZEROTH_RUN_SECRET=\"$ZEROTH_RUN_SECRET\" srun -n 2 --ntasks-per-node=1 --nodes 2 --nodelist "
      "worker-1,worker-0 --distribution=arbitrary --cpu-bind=none --kill-on-bad-exit=0 "
      "--export=ALL,ZEROTH_RUN_SECRET "
      "/opt/zeroth/bin/zeroth agent --launcher '10.0.0.1:4000,[fd00::1]:4000' --secret-env "
      "ZEROTH_RUN_SECRET\n");
  request.gpus_per_node = 2;
  request.launcher_args = {"--comment", "two words"};
  CHECK(lines("slurm", request).find("--gpus-per-node 2 --comment 'two words' --export=") !=
        std::string::npos);
  request.hosts = {{"worker-0", {1}}};
  CHECK(error_of("slurm", request)
            .starts_with("--launcher slurm: slots 1 of worker-0 are not the first ones, and Slurm "
                         "cannot select specific GPUs"));
  request.hosts = {{"worker-0", {0, 2}}, {"worker-1", {0, 1}}};
  CHECK(error_of("slurm", request).starts_with("--launcher slurm: slots 0,2 of worker-0"));
  request.hosts = {{"worker-0", {0, 1}}, {"worker-1", {0}}};
  CHECK(error_of("slurm", request) ==
        "--launcher slurm: worker-0 has 2 slots, but worker-1 has 1: all hosts must have the same "
        "number");
}

TEST_CASE("no command line holds the secret, and each agent is started once") {
  for (const char* name : {"ssh", "pdsh", "openmpi", "mpich", "impi", "slurm"}) {
    CAPTURE(name);
    const AgentCommands agents = start(name);
    std::vector<int> hosts;
    for (const auto* commands : {&agents.setup, &agents.agents, &agents.cleanup})
      for (const AgentCommand& command : *commands)
        for (const std::string& word : command.argv) CHECK(word.find(kSecret) == std::string::npos);
    for (const AgentCommand& command : agents.agents)
      hosts.insert(hosts.end(), command.hosts.begin(), command.hosts.end());
    CHECK(hosts == std::vector<int>{0, 1});
    CHECK(lines(name).find(kSecret) == std::string::npos);
  }
}

TEST_CASE("hosts that a backend cannot reach as they are written are refused") {
  AgentLaunchRequest request = two_hosts();
  request.hosts[1].host = "alice@worker-0";
  for (const char* name : {"openmpi", "mpich", "impi", "slurm"})
    CHECK(error_of(name, request)
              .find("a user before a host, as in alice@worker-0, is not supported") !=
          std::string::npos);
  for (const char* name : {"ssh", "pdsh"}) CHECK(error_of(name, request) == "no exception");
  request.hosts[1].host = "fe80::1%eth0";
  for (const char* name : {"pdsh", "openmpi", "mpich", "impi", "slurm"})
    CHECK(error_of(name, request).find("an IPv6 address as a host") != std::string::npos);
  CHECK(error_of("ssh", request) == "no exception");
}

TEST_CASE("an unknown launcher is refused, and mvapich with what to use instead") {
  const auto error = [](const char* name) {
    return message_of<UsageError>([&] { find_backend(name); });
  };
  CHECK(error("rsh") == "--launcher rsh: must be one of ssh, pdsh, openmpi, mpich, impi, slurm");
  CHECK(error("mvapich").find("--launcher mpich starts agents with the same kind") !=
        std::string::npos);
  CHECK(std::string(find_backend("slurm").tool) == "srun");
}

TEST_CASE("through ssh and the shell on a host an agent gets its words byte for byte") {
  const Programs programs;
  AgentLaunchRequest request = two_hosts();
  request.zeroth = (programs.odd_folder() / "zeroth").string();
  for (int node = 0; node < 2; ++node)
    CHECK(programs.run(start("ssh", request).agents[static_cast<size_t>(node)]) ==
          fmt::format("<agent><--launcher><10.0.0.1:4000,[fd00::1]:4000><--node><{}>"
                      "<--secret-stdin>unset\n{}\n",
                      node, kSecret));
}

TEST_CASE("before pdsh a secret's file is made anew for this user alone, and can be removed") {
  const Programs programs;
  AgentLaunchRequest request = two_hosts();
  const TempFolder unique;  // a name that no other run has
  request.token = unique.path().filename().string();
  const std::string file = "/tmp/zeroth-" + request.token + "-0";
  const AgentCommands agents = start("pdsh", request);
  CHECK(programs.run(agents.setup[0]).empty());
  CHECK(read_text(file) == std::string(kSecret) + "\n");
  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(programs.run(agents.setup[0], false).find(file) != std::string::npos);
  CHECK(read_text(file) == std::string(kSecret) + "\n");
  CHECK(programs.run(agents.cleanup[0]).empty());
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("through pdsh an agent gets its words byte for byte, and its number") {
  if (std::system("command -v pdsh >/dev/null") != 0) {
    MESSAGE("skipped: pdsh is not installed");
    return;
  }
  const Programs programs;
  AgentLaunchRequest request = two_hosts();
  request.zeroth = (programs.odd_folder() / "zeroth").string();
  const std::string out = programs.run(start("pdsh", request).agents[0]);
  for (int node = 0; node < 2; ++node)
    CHECK(out.find(fmt::format("{}: <agent><--launcher><10.0.0.1:4000,[fd00::1]:4000>"
                               "<--secret-file></tmp/zeroth-f00d-{}><--node><{}>",
                               request.hosts[static_cast<size_t>(node)].host, node, node)) !=
          std::string::npos);
}

}  // namespace zeroth::launcher::node_backend_test
