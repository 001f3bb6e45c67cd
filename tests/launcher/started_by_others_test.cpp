// One zeroth on each node, started by a scheduler. Here two on one machine play the nodes, with the
// variables that a scheduler sets, or under an mpirun that believes in two nodes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "launcher/machine/find_program.h"
#include "launcher/machine/local_addresses.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::started_by_others_test {
namespace {

using Words = std::vector<std::string>;

Words sorted(Words lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

const Words kProgram = {rank_program(), "env",  "WORLD_SIZE",  "LOCAL_RANK",
                        "CROSS_RANK",   "RANK", "MASTER_PORT", "ZEROTH_MEETING"};

Words lines(int rank, int local, int node, int port) {
  Words expected;
  for (const std::string& line :
       {std::string("WORLD_SIZE=4"), fmt::format("LOCAL_RANK={}", local),
        fmt::format("CROSS_RANK={}", node), fmt::format("RANK={}", rank),
        fmt::format("MASTER_PORT={}", port), std::string("ZEROTH_MEETING unset")})
    expected.push_back(fmt::format("[{}] {}", rank, line));
  return expected;
}

Words lines_of_all(int port) {
  Words all;
  for (int rank = 0; rank < 4; ++rank)
    for (const std::string& line : lines(rank, rank % 2, rank / 2, port)) all.push_back(line);
  return sorted(all);
}

Words with_program(Words words) {
  words.insert(words.end(), kProgram.begin(), kProgram.end());
  return words;
}

Environment step_of_slurm(int node, int tasks = 2) {
  return {{"SLURM_JOB_ID", "18459"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", std::to_string(node)},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NODELIST", "localhost,other"}};
}

bool is_installed(const std::string& tool) {
  try {
    find_program(tool, "/nonexistent", std::getenv("PATH"));
  } catch (const ProgramError&) {
    return false;
  }
  return true;
}

// What mpirun takes for ssh: [-x] HOST COMMAND..., here on the same machine. Each host has its own
// TMPDIR: Open MPI's daemons make folders and files there that two on one machine fight over.
std::string remote_shell(const TempFolder& directory) {
  const auto path = directory.write("shell", fmt::format("#!/bin/sh\n"
                                                         "[ \"$1\" = -x ] && shift\n"
                                                         "export TMPDIR=\"{}/$1\"\n"
                                                         "mkdir -p \"$TMPDIR\"\n"
                                                         "shift\n"
                                                         "exec /bin/sh -c \"$*\"\n",
                                                         directory.path().string()));
  ::chmod(path.c_str(), 0700);
  return path;
}

}  // namespace

TEST_CASE("a zeroth on each node of a step of Slurm starts its node's ranks of all") {
  const Words command = with_program({"--num_gpus=2"});
  LaunchedProcess first(command, step_of_slurm(0));
  LaunchedProcess second(command, step_of_slurm(1));
  const auto zero = first.wait();
  const auto one = second.wait();
  CHECK(zero.status == 0);
  CHECK(one.status == 0);
  Words all = lines_of(zero.out);
  for (const std::string& line : lines_of(one.out)) all.push_back(line);
  CHECK(sorted(all) == lines_of_all(23459));
  CHECK(
      zero.err ==
      "zeroth: node 0 of 2 (Slurm), master localhost:23459\n"
      "zeroth: neither ZEROTH_SECRET nor ZEROTH_SECRET_FILE is set: anyone who can reach that port "
      "can disturb the start of the ranks. Set one of them on all nodes (docs/security.md)\n");
  CHECK(one.err == "zeroth: node 1 of 2 (Slurm), master localhost:23459\n");
}

TEST_CASE("flags go before what a scheduler says, and a secret needs no note") {
  Environment environment = step_of_slurm(1);
  environment.emplace_back("ZEROTH_SECRET", "of this user, as long");
  const auto result = run_zeroth({"--node_rank=0", "--master_addr=127.0.0.1", "--master_port=23477",
                                  rank_program(), "env", "RANK", "MASTER_ADDR", "ZEROTH_SECRET"},
                                 environment);
  CHECK(result.out ==
        "[0] RANK=0\n[0] MASTER_ADDR=127.0.0.1\n[0] ZEROTH_SECRET=of this user, as long\n");
  CHECK(result.err == "zeroth: node 0 of 2 (Slurm), master 127.0.0.1:23477\n");
  const auto alone =
      run_zeroth({"--no_ssh", "-q", rank_program(), "env", "WORLD_SIZE"}, environment);
  CHECK(alone.out == "WORLD_SIZE=1\n");
}

TEST_CASE("several on a node are refused before any rank starts") {
  const auto result = run_zeroth({rank_program(), "env", "RANK"}, step_of_slurm(1, 16));
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK(result.err.starts_with("zeroth: error: Slurm has started 16 zeroths on 2 nodes: "));
}

TEST_CASE("without a hostfile nodes by hand are alike") {
  const auto node = [](const char* rank) {
    return Words{"--no_ssh",    "--num_nodes=2",           "--node_rank",
                 rank,          "--master_addr=127.0.0.1", "--master_port=23478",
                 "--num_gpus=2"};
  };
  LaunchedProcess first(with_program(node("0")));
  LaunchedProcess second(with_program(node("1")));
  Words all = lines_of(first.wait().out);
  for (const std::string& line : lines_of(second.wait().out)) all.push_back(line);
  CHECK(sorted(all) == lines_of_all(23478));
}

TEST_CASE("a pod with several ranks starts so many") {
  const Environment pod = {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "2"}};
  const auto result = run_zeroth({rank_program(), "env", "WORLD_SIZE", "ZEROTH_MEETING"}, pod);
  CHECK(result.status == 0);
  CHECK(result.out.find("[1] WORLD_SIZE=2\n") != std::string::npos);
  CHECK(result.out.find("unset") == std::string::npos);
  CHECK(run_zeroth({"--num_gpus=1", rank_program(), "env", "WORLD_SIZE"}, pod).out ==
        "WORLD_SIZE=1\n");
}

TEST_CASE("a zeroth on each node under mpirun, once for each kind that is installed") {
  const TempFolder directory;
  const std::string shell = remote_shell(directory);
  struct Kind {
    Words mpirun;
    std::string name;
    int port;
  };
  const Kind kinds[] = {
      {{"mpirun.openmpi", "--allow-run-as-root", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent",
        shell, "--host", "zeroth-node-a,zeroth-node-b", "--map-by", "ppr:1:node"},
       "Open MPI",
       23479},
      {{"mpirun.mpich", "-launcher", "ssh", "-launcher-exec", shell, "-hosts",
        "zeroth-node-a,zeroth-node-b", "-ppn", "1", "-n", "2"},
       "MPI",
       23480}};
  for (const Kind& kind : kinds) {
    if (!is_installed(kind.mpirun[0])) {
      MESSAGE("not run: ", kind.mpirun[0], " is not installed");
      continue;
    }
    CAPTURE(kind.name);
    Words words = kind.mpirun;
    for (const std::string& word :
         {std::string(ZEROTH_BIN_DIR "/zeroth"), std::string("--master_addr=127.0.0.1"),
          fmt::format("--master_port={}", kind.port), std::string("--num_gpus=2")})
      words.push_back(word);
    const auto result = run_program(with_program(words));
    CHECK(result.status == 0);
    CHECK(sorted(lines_of(result.out)) == lines_of_all(kind.port));
    for (const int node : {0, 1}) {
      const auto line = fmt::format("zeroth: node {} of 2 ({}), master 127.0.0.1:{}\n", node,
                                    kind.name, kind.port);
      CHECK(result.err.find(line) != std::string::npos);
    }
  }
}

TEST_CASE("elastic_pet_nnodes: a pod of an elastic PyTorchJob runs as its operator asks") {
  const int port = resolve_master_port(std::nullopt);
  Environment pod = {{"PET_NNODES", "1:2"},
                     {"PET_NPROC_PER_NODE", "2"},
                     {"PET_RDZV_ENDPOINT", fmt::format("127.0.0.1:{}", port)},
                     {"PET_RDZV_BACKEND", "c10d"},
                     {"PET_MAX_RESTARTS", "3"},
                     {"ZEROTH_SECRET", "0123456789abcdef of a test"}};
  const auto result = run_zeroth({rank_program(), "env", "WORLD_SIZE", "ZEROTH_ROUND"}, pod);
  CHECK(result.status == 0);
  CHECK(sorted(lines_of(result.out)) ==
        Words{"[0] WORLD_SIZE=2", "[0] ZEROTH_ROUND=0", "[1] WORLD_SIZE=2", "[1] ZEROTH_ROUND=0"});
  CHECK(result.err.find("zeroth: PET_NNODES=1:2: treated as --elastic 1:2") != std::string::npos);
  pod.emplace_back("PET_NODE_RANK", "7");
  CHECK(run_zeroth({rank_program(), "env"}, pod).status == 2);
  const auto no_secret = run_zeroth({rank_program(), "env"},
                                    {{"PET_NNODES", "1:2"}, {"PET_RDZV_ENDPOINT", "127.0.0.1"}});
  CHECK(no_secret.status == 2);
}

}  // namespace zeroth::launcher::started_by_others_test
