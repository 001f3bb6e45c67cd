#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::dry_run_test {
namespace {

const std::string kZeroth = ZEROTH_BIN_DIR "/zeroth";

// A hostfile of two hosts.
class Hosts {
 public:
  Hosts() { directory_.write("hosts", "worker-0 slots=2\nworker-1 slots=2\n"); }
  std::string file() const { return directory_ / "hosts"; }
  const TempFolder& directory() const { return directory_; }

 private:
  TempFolder directory_;
};

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int byte; (byte = std::fgetc(pipe)) != EOF;) out += static_cast<char>(byte);
  CHECK(::pclose(pipe) == 0);
  return out;
}

}  // namespace

TEST_CASE("--dry-run prints how agents would be started, whatever is installed") {
  const Hosts hosts;
  const auto result = run_zeroth({"-H", hosts.file(), "--launcher=ssh", "--num_nodes=1",
                                  "--dry-run", "finetune", "--model", "it's"});
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  CHECK(result.out ==
        "printf '%s\\n' \"$ZEROTH_RUN_SECRET\" | ssh -o BatchMode=yes -o ConnectTimeout=30 -- "
        "worker-0 "
        "'exec " +
            kZeroth +
            " agent --launcher ADDRESS:PORT --node 0 --secret-stdin'\n"
            "# worker-0 starts ranks 0-1 of 2 (slots 0,1): finetune --model 'it'\\''s'\n");
  const auto slurm =
      run_zeroth({"-H", hosts.file(), "--launcher=slurm", "--num_gpus=1", "--dry_run", "finetune"});
  CHECK(
      slurm.out ==
      "ZEROTH_RUN_SECRET=\"$ZEROTH_RUN_SECRET\" srun -n 2 --ntasks-per-node=1 --nodes 2 --nodelist "
      "worker-0,worker-1 --distribution=arbitrary --cpu-bind=none --kill-on-bad-exit=0 "
      "--export=ALL,ZEROTH_RUN_SECRET " +
          kZeroth +
          " agent --launcher ADDRESS:PORT --secret-env ZEROTH_RUN_SECRET\n"
          "# worker-0 starts rank 0 of 2 (slots 0): finetune\n"
          "# worker-1 starts rank 1 of 2 (slots 0): finetune\n");
  const auto gpus =
      run_zeroth({"-H", hosts.file(), "--launcher=slurm", "--num_gpus=1", "--dry-run", "finetune"},
                 {{"DS_ACCELERATOR", "cuda"}});
  CHECK(gpus.out.find(" --gpus-per-node 1 --export=") != std::string::npos);
  const auto pdsh = run_zeroth({"-H", hosts.file(), "--launcher=pdsh", "--dry-run", "finetune"},
                               {{"PDSH_SSH_ARGS_APPEND", "-i key"}});
  const auto lines = lines_of(pdsh.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[1].find("ssh -o BatchMode=yes -i key -o ConnectTimeout=30 -- worker-1 ") !=
        std::string::npos);
  CHECK(lines[1].find("cat > /tmp/zeroth-TOKEN-1") != std::string::npos);
  CHECK(
      lines[2].find(
          "PDSH_SSH_ARGS_APPEND='-i key -o BatchMode=yes -o ConnectTimeout=30' pdsh -S -f 1024 -w "
          "worker-0,worker-1 ") != std::string::npos);
}

TEST_CASE("--dry-run over several hosts looks at PROGRAM as on one") {
  const Hosts hosts;
  for (const std::string& where : {std::string("--num_gpus=2"), "--hostfile=" + hosts.file()}) {
    CAPTURE(where);
    const auto without = run_zeroth({where, "--dry-run"});
    CHECK(without.status == 2);
    CHECK(without.err.starts_with("zeroth: error: no PROGRAM to start\n"));
  }
  const auto unknown =
      run_zeroth({"-H", hosts.file(), "--launcher=ssh", "--dry-run", "no-such-program", "a\nb"});
  CHECK(unknown.status == 0);
  CHECK(unknown.err.starts_with(
      "zeroth: warning: on this machine program 'no-such-program' was not found"));
  CHECK(lines_of(unknown.out).back() ==
        "# worker-1 starts ranks 2-3 of 4 (slots 0,1): no-such-program 'a\\nb'");
}

TEST_CASE("pdsh is the default where it is installed, else ssh with a word about it") {
  const Hosts hosts;
  const auto with = [&](const std::string& path) {
    return run_zeroth({"-H", hosts.file(), "--dry-run", "finetune"}, {{"PATH", path}});
  };
  const auto without = with(hosts.directory().path());
  CHECK(without.err ==
        "zeroth: pdsh is not installed: hosts are reached by ssh (--launcher ssh)\n");
  CHECK(without.out.find(" | ssh ") != std::string::npos);
  std::filesystem::permissions(hosts.directory().write("pdsh", "#!/bin/sh\n"),
                               std::filesystem::perms::owner_all);
  const auto installed = with(hosts.directory().path());
  CHECK(installed.err.empty());
  CHECK(installed.out.find(" pdsh -S ") != std::string::npos);
}

TEST_CASE("a wrong hostfile, filter or launcher ends before anything is started") {
  const Hosts hosts;
  const TempFolder directory;
  const std::string bad = directory.write("bad", "worker-0 slots=2\nthis is bad\n");
  const auto line = run_zeroth({"-H", bad, "finetune"});
  CHECK(line.status == 2);
  CHECK(line.err == "zeroth: error: " + bad + ": line 2: 'is' instead of slots=N\n");
  CHECK(run_zeroth({"-H", directory / "none", "finetune"}).status == 2);
  const auto filter = run_zeroth({"-H", hosts.file(), "-i", "jeff", "finetune"});
  CHECK(filter.status == 2);
  CHECK(filter.err.find("unknown host 'jeff'") != std::string::npos);
  CHECK(run_zeroth({"-H", hosts.file(), "--launcher=mvapich", "finetune"}).status == 2);
  directory.write(".deepspeed_env", "bad line\n");
  const auto environment =
      run_zeroth({"-H", hosts.file(), "finetune"}, {{"HOME", directory.path().string()}});
  CHECK(environment.status == 2);
  CHECK(environment.err.find(".deepspeed_env: line 1: 'bad line' has no '='") != std::string::npos);
}

TEST_CASE("a variable that sounds like a secret is told of, and stays") {
  const Hosts hosts;
  const auto result = run_zeroth({"-H", hosts.file(), "--launcher=ssh", "--dry-run", "finetune"},
                                 {{"MLFLOW_TRACKING_TOKEN", "hush"}});
  CHECK(result.err.find("zeroth: MLFLOW_TRACKING_TOKEN is not forwarded to the hosts") !=
        std::string::npos);
  CHECK((result.err + result.out).find("hush") == std::string::npos);
}

TEST_CASE("what --help prints needs no host") {
  const Hosts hosts;
  CHECK(run_zeroth({"-H", hosts.file(), "echo", "--help"}).status == 0);
}

TEST_CASE("on one machine --dry-run prints ranks that a shell can start as they are") {
  const auto result =
      run_zeroth({"--num_gpus=2", "--dry-run", "--master_port=29511", rank_program(), "args",
                  "I am 6' tall", "I am 72\" tall", "$HOME `id`", "", "64(x2)"});
  CHECK(result.status == 0);
  const auto lines = lines_of(result.out);
  REQUIRE(lines.size() == 2);
  CHECK(
      lines[1].starts_with("RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_SIZE=2 CROSS_RANK=0 "
                           "CROSS_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 "
                           "DS_ACCELERATOR=cpu "));
  CHECK(lines[1].find("ZEROTH_MEETING") == std::string::npos);
  CHECK(output_of(lines[1]) == "<I am 6' tall>\n<I am 72\" tall>\n<$HOME `id`>\n<>\n<64(x2)>\n");
  const auto bound = run_zeroth({"--dry-run", rank_program(), "cores"});
  CHECK(bound.out.find(" taskset -c ") != std::string::npos);
  CHECK(output_of(bound.out) == run_zeroth({rank_program(), "cores"}).out);
}

}  // namespace zeroth::launcher::dry_run_test
