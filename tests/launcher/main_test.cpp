#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <fstream>

#include "launcher/machine/machine.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::main_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<std::string> sorted(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string sorted_list(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  return fmt::format("{}", fmt::join(cores, ","));
}

}  // namespace

TEST_CASE("1, 2 and 3 ranks get exactly their environment") {
  for (int size = 1; size <= 3; ++size) {
    CAPTURE(size);
    const auto result = run_zeroth(
        {"--num_gpus", std::to_string(size), "--master_addr", "127.0.0.7", "--master_port", "34567",
         rank_program(), "env", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK",
         "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "ZEROTH_TTY"},
        {{"ZEROTH_TTY", "1"}, {"RANK", "9"}});
    std::vector<std::string> expected;
    for (int rank = 0; rank < size; ++rank) {
      const std::string prefix = size == 1 ? "" : fmt::format("[{}] ", rank);
      for (const std::string& line :
           {fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank),
            fmt::format("WORLD_SIZE={}", size), fmt::format("LOCAL_SIZE={}", size),
            std::string("CROSS_RANK=0"), std::string("CROSS_SIZE=1"),
            std::string("MASTER_ADDR=127.0.0.7"), std::string("MASTER_PORT=34567"),
            std::string("DS_ACCELERATOR=cpu"), std::string("ZEROTH_TTY unset")})
        expected.push_back(prefix + line);
    }
    CHECK(result.status == 0);
    CHECK(sorted(lines_of(result.out)) == sorted(expected));
  }
}

TEST_CASE("all ranks get the same free port and the launch time") {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = now();
  const auto result = run_zeroth({"--num_gpus=2", rank_program(), "env", "MASTER_PORT"});
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].substr(4) == lines[1].substr(4));
  CHECK(std::stoi(lines[0].substr(lines[0].find('=') + 1)) > 0);
  const auto time = run_zeroth({rank_program(), "env", "ZEROTH_LAUNCH_TIME"});
  const double launched = std::stod(time.out.substr(time.out.find('=') + 1));
  CHECK(launched >= before - 0.001);
  CHECK(launched <= now());
}

TEST_CASE("ranks get the ticket of memory that this launcher holds, a rank by itself none") {
  const Environment outer = {{"ZEROTH_MEETING", "of a launcher around this one"}};
  const auto pair = run_zeroth({"--num_gpus=2", rank_program(), "env", "ZEROTH_MEETING"}, outer);
  const std::vector<std::string> lines = lines_of(pair.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].substr(4) == lines[1].substr(4));
  CHECK(std::count(lines[0].begin(), lines[0].end(), ':') == 3);  // kernel:pid:descriptor:inode
  const auto alone = run_zeroth({rank_program(), "env", "ZEROTH_MEETING"}, outer);
  CHECK(alone.out == "ZEROTH_MEETING unset\n");
}

TEST_CASE("arguments reach the ranks unchanged") {
  const std::vector<std::string> arguments = {"two words", "",     "\"quoted\"", "it's", "$HOME",
                                              "a\\b",      "--lr", "--x=1 2",    "*",    "--help"};
  std::vector<std::string> command = {"--num_gpus=1", rank_program(), "args"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::string expected;
  for (const std::string& argument : arguments) expected += "<" + argument + ">\n";
  CHECK(run_zeroth(command).out == expected);
}

TEST_CASE("values of the environment reach the ranks unchanged") {
  const std::string odd = "two words \"quoted\" it's $HOME a\\b=c;d&e|f\tg %s \xc3\xa9 \xff";
  const auto result = run_zeroth({rank_program(), "env", "ODD", "EMPTY", "LINES"},
                                 {{"ODD", odd}, {"EMPTY", ""}, {"LINES", "a\nb"}});
  CHECK(result.out == "ODD=" + odd + "\nEMPTY=\nLINES=a\nb\n");
}

TEST_CASE("--timeout is in the environment of the ranks") {
  CHECK(run_zeroth({"--timeout=7", rank_program(), "env", "ZEROTH_TIMEOUT"}).out ==
        "ZEROTH_TIMEOUT=7\n");
  CHECK(run_zeroth({"--timeout=never", rank_program(), "env", "RANK"}).status == 2);
  const auto refused =
      run_zeroth({"--num_gpus=2", rank_program(), "env", "RANK"}, {{"DEEPSPEED_TIMEOUT", "soon"}});
  CHECK(refused.status == 1);
  CHECK(refused.out.empty());
  CHECK(count(refused.err, "DEEPSPEED_TIMEOUT is 'soon'") == 1);
}

TEST_CASE("each rank's log holds both its outputs, the console has them as before") {
  const TempFolder directory;
  const auto result =
      run_zeroth({"--num_gpus=2", "--enable_each_rank_log", directory.path() / "logs", "/bin/sh",
                  "-c", "echo out $RANK; sleep 0.5; echo err $RANK >&2; sleep $RANK; exit $RANK"});
  CHECK(result.status == 1);
  CHECK(sorted(lines_of(result.out)) == std::vector<std::string>{"[0] out 0", "[1] out 1"});
  CHECK(contains(result.err, "[0] err 0\n"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path() / "logs"))
    names.push_back(entry.path().filename().string());
  names = sorted(names);
  REQUIRE(names.size() == 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(names[rank].size() == std::string("20260309070000_rank0.log").size());
    CHECK(names[rank].ends_with(fmt::format("_rank{}.log", rank)));
    CHECK(read_text(directory.path() / "logs" / names[rank]) ==
          fmt::format("out {0}\nerr {0}\n", rank));
  }
  const auto refused = run_zeroth({"--enable_each_rank_log", rank_program(), "/bin/true"});
  CHECK(refused.status == 1);
  CHECK(contains(refused.err, "it is a file, but should be a folder"));
}

TEST_CASE("jobs of an array log into one folder in one second") {
  const TempFolder directory;
  const std::string job = ZEROTH_BIN_DIR "/zeroth --num_gpus=2 --enable_each_rank_log '" +
                          directory.path().string() + "' /bin/sh -c 'echo \"$0 $RANK\"' ";
  std::string script;
  for (const char* name : {"a", "b", "c", "d"}) script += job + name + " & ";
  CHECK(run_zeroth({"--num_gpus=1", "/bin/sh", "-c", script + "wait"}).status == 0);
  std::vector<std::string> logs;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    logs.push_back(read_text(entry.path()));
  CHECK(sorted(logs) == std::vector<std::string>{"a 0\n", "a 1\n", "b 0\n", "b 1\n", "c 0\n",
                                                 "c 1\n", "d 0\n", "d 1\n"});
}

TEST_CASE("--save_pid keeps the launcher's number in DeepSpeed's file while it runs") {
  const auto result =
      run_zeroth({"--save_pid", "/bin/sh", "-c", "echo $PPID; cat /tmp/$PPID.deepspeed; echo"});
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == lines[1]);
  CHECK_FALSE(std::filesystem::exists("/tmp/" + lines[0] + ".deepspeed"));
}

TEST_CASE("report tells of build and machine, and starts nothing") {
  const auto result = run_zeroth({"report"});
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  for (const char* part : {"LibTorch", "CUDA toolkit", "NCCL", "io_uring", "/dev/shm", "finetune"})
    CHECK(contains(result.out, part));
}

TEST_CASE("--quiet leaves errors only, --log_level debug tells what each rank gets") {
  const auto quiet = run_zeroth({"-q", "--no_ssh", rank_program(), "args", "--master_port", "1"});
  CHECK(quiet.err.empty());
  CHECK(contains(run_zeroth({"-q", rank_program(), "exit", "3"}).err, "exit code 3"));
  const auto loud = run_zeroth({"--log_level=debug", "--no_ssh", rank_program(), "env", "RANK"});
  CHECK(contains(loud.err, "zeroth: --no_ssh has no effect: one machine needs no ssh"));
  CHECK(contains(loud.err, "zeroth: rank 0: cores ["));
  CHECK(contains(loud.err, "WORLD_SIZE=1"));
}

TEST_CASE("ranks are bound to their cores, and their threads match") {
  const std::vector<int> cores = probe_machine({"cpu", {}, ""}).cores;
  const auto alone = run_zeroth({rank_program(), "cores"});
  CHECK(alone.out == sorted_list(cores) + "\n");
  CHECK(run_zeroth({rank_program(), "env", "OMP_NUM_THREADS"}).out ==
        fmt::format("OMP_NUM_THREADS={}\n", cores.size()));
  const std::string last = std::to_string(cores.back());
  const auto listed = run_zeroth({"--bind_core_list", last, rank_program(), "cores"});
  CHECK(listed.out == last + "\n");
  if (cores.size() < 2) return;
  const auto half = static_cast<std::ptrdiff_t>((cores.size() + 1) / 2);
  const auto pair = run_zeroth({"--num_gpus=2", rank_program(), "cores"});
  CHECK(sorted(lines_of(pair.out)) ==
        std::vector<std::string>{"[0] " + sorted_list({cores.begin(), cores.begin() + half}),
                                 "[1] " + sorted_list({cores.begin() + half, cores.end()})});
}

TEST_CASE("a user's OMP_NUM_THREADS wins, and binding can be switched off") {
  CHECK(run_zeroth({rank_program(), "env", "OMP_NUM_THREADS"}, {{"OMP_NUM_THREADS", "7"}}).out ==
        "OMP_NUM_THREADS=7\n");
  CHECK(run_zeroth({"--no_bind_cores_to_rank", rank_program(), "env", "OMP_NUM_THREADS"}).out ==
        "OMP_NUM_THREADS unset\n");
}

TEST_CASE("more ranks than cores run with a single warning") {
  const std::string only = std::to_string(probe_machine({"cpu", {}, ""}).cores.front());
  const auto result =
      run_zeroth({"--num_gpus=3", "--bind_core_list", only, rank_program(), "cores"});
  CHECK(result.status == 0);
  CHECK(result.err == "zeroth: warning: 3 ranks share 1 core, so they run in turns\n");
  CHECK(sorted(lines_of(result.out)) ==
        std::vector<std::string>{"[0] " + only, "[1] " + only, "[2] " + only});
}

TEST_CASE("a master port that is taken is refused before any rank starts") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor taken(io, {boost::asio::ip::address_v4::loopback(), 0});
  const std::string port = std::to_string(taken.local_endpoint().port());
  const auto result = run_zeroth({"--master_port", port, rank_program(), "env", "RANK"});
  CHECK(result.status == 1);
  CHECK(result.out.empty());
  CHECK(contains(result.err, "--master_port " + port + " is taken"));
}

TEST_CASE("a program that is not there or cannot run ends with 127 or 126") {
  const auto missing = run_zeroth({"no_such_program"});
  CHECK(missing.status == 127);
  CHECK(contains(missing.err, "'no_such_program' was not found"));
  CHECK(contains(missing.err, "\n  looked beside zeroth in "));
  CHECK(contains(missing.err, ZEROTH_BIN_DIR));
  CHECK(run_zeroth({"/no/such/program"}).status == 127);
  CHECK(run_zeroth({ZEROTH_SOURCE_DIR "/CMakeLists.txt"}).status == 126);
  const TempFolder directory;
  const std::string broken = directory.path() / "broken";
  std::ofstream(broken) << "\x7f"
                           "ELF, but no more";
  ::chmod(broken.c_str(), 0755);
  const auto result = run_zeroth({"--num_gpus=2", broken});
  CHECK(result.status == 126);
  CHECK(contains(result.err, broken + " cannot be executed: Exec format error"));
}

TEST_CASE("programs beside zeroth and along PATH are found by name") {
  CHECK(contains(run_zeroth({"zeroth", "--version"}).out, "zeroth "));
  CHECK(run_zeroth({"echo", "hello"}).out == "hello\n");
}

TEST_CASE("a wrong command line or environment is an error with its reason") {
  const auto usage = run_zeroth({});
  CHECK(usage.status == 2);
  CHECK(contains(usage.err, "Usage: zeroth [flags] PROGRAM"));
  const auto python = run_zeroth({"train.py"});
  CHECK(python.status == 2);
  CHECK(contains(python.err, "train.py is a Python script"));
  CHECK(contains(python.err, "zeroth finetune"));
  const auto filter = run_zeroth({"--include", "localhost:999999", rank_program(), "cores"});
  CHECK(filter.status == 2);
  CHECK(contains(filter.err, "unknown slot 999999"));
  const auto device = run_zeroth({rank_program(), "cores"}, {{"DS_ACCELERATOR", "tpu"}});
  CHECK(device.status == 1);
  CHECK(contains(device.err, "DS_ACCELERATOR is 'tpu'; must be cpu or cuda"));
  const auto hidden = run_zeroth({rank_program(), "cores"},
                                 {{"DS_ACCELERATOR", "cuda"}, {"CUDA_VISIBLE_DEVICES", ""}});
  CHECK(hidden.status == 1);
  CHECK(contains(hidden.err, "no GPU is visible"));
}

TEST_CASE("a misplaced flag is warned of once and handed on") {
  const auto result = run_zeroth({rank_program(), "args", "--master_port", "1"});
  CHECK(result.status == 0);
  CHECK(result.out == "<--master_port>\n<1>\n");
  CHECK(count(result.err, "--master_port after ") == 1);
}

TEST_CASE("help and version are printed and end with 0") {
  const auto help = run_zeroth({"--help"});
  CHECK(help.status == 0);
  for (const char* flag : {"--num_gpus", "--include", "--exclude", "--master_port",
                           "--bind_cores_to_rank", "--no_bind_cores_to_rank", "--bind_core_list",
                           "--share-gpus", "DS_ACCELERATOR", "--timeout", "--enable_each_rank_log",
                           "--save_pid", "--grace", "--log_level", "--num_nodes", "report"})
    CHECK(contains(help.out, flag));
  CHECK(run_zeroth({"--version"}).status == 0);
}

TEST_CASE("nested_launchers: a zeroth that is one of several ranks already ends with 2") {
  const auto inner = run_zeroth({"--num_gpus", "1", rank_program(), "exit", "0"},
                                {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}});
  CHECK(inner.status == 2);
  CHECK(contains(inner.err, "zeroth already runs as rank 1 of 2 of another launcher"));
  const auto outer = run_zeroth({"--num_gpus", "2", "zeroth", rank_program(), "exit", "0"});
  CHECK(outer.status == 2);
  CHECK(contains(outer.err, "of 2 of zeroth ("));
  const auto wanted =
      run_zeroth({"--num_gpus", "2", "env", "-u", "RANK", "-u", "LOCAL_RANK",
                  std::string(ZEROTH_BIN_DIR) + "/zeroth", rank_program(), "env", "WORLD_SIZE"});
  CHECK(wanted.status == 0);
  CHECK(count(wanted.out, "WORLD_SIZE=1\n") == 2);
}

TEST_CASE("empty_flag_value: a flag or a variable of zeroth that is empty ends with 2") {
  for (const char* const flag :
       {"--num_gpus", "--master_addr", "--master_port", "--num_nodes", "--hostfile", "--launcher",
        "--bind_core_list", "--enable_each_rank_log", "--timeout", "--join", "--elastic",
        "--log_level", "-H"}) {
    CAPTURE(flag);
    const auto result = run_zeroth({flag, "", rank_program(), "exit", "0"});
    CHECK(result.status == 2);
    CHECK(contains(result.err, std::string(flag) + " needs a value"));
    const std::string joined = std::string(flag) + "=";
    if (joined.starts_with("--"))
      CHECK(run_zeroth({joined, rank_program(), "exit", "0"}).status == 2);
  }
  CHECK(run_zeroth({"--include", "", "--exclude=", rank_program(), "exit", "0"}).status == 0);
  for (const char* const name : {"DS_ENV_FILE", "ZEROTH_SECRET", "MASTER_ADDR"}) {
    const auto result = run_zeroth({rank_program(), "exit", "0"}, {{name, ""}});
    CHECK(result.status == 2);
    CHECK(contains(result.err, std::string("environment variable ") + name + " is empty"));
  }
}

TEST_CASE("what is wrong in a file of the user's ends with 2, as a wrong flag does") {
  const TempFolder directory;
  const std::string hosts = directory.write("hosts", "worker-0 slots=x\n");
  for (const std::string& file :
       {hosts, std::string(directory / "missing"), directory.path().string()}) {
    const auto result = run_zeroth({"--hostfile", file, rank_program(), "exit", "0"});
    CHECK(result.status == 2);
    CHECK(contains(result.err, "zeroth: error: "));
  }
}

TEST_CASE("a round knows what the rank said that ended the one before") {
  const auto result =
      run_zeroth({"--num_gpus=2", "--max-restarts=1", "sh", "-c",
                  "[ $ZEROTH_ROUND = 0 ] || { echo \"cause: $ZEROTH_ROUND_CAUSE\"; exit; }\n"
                  "[ $RANK = 1 ] || exec sleep 60\n"
                  "echo begins; echo 'prog: error: no room' >&2; echo '  make some' >&2; exit 3"});
  CHECK(result.status == 0);
  CHECK_MESSAGE(result.out.find("cause: rank 1 ended with exit code 3: prog: error: no room\n") !=
                    std::string::npos,
                result.out);
}

}  // namespace zeroth::launcher::main_test
