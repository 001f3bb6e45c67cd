#include "launcher/flags/cli.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::cli_test {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& words) {
  try {
    parse_command_line(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a program alone gets the defaults") {
  const LaunchOptions options = parse_command_line({"finetune"});
  CHECK(options.command == Words{"finetune"});
  CHECK_FALSE(options.num_ranks);
  CHECK_FALSE(options.master_addr);
  CHECK_FALSE(options.master_port);
  CHECK_FALSE(options.bind_cores);
  CHECK_FALSE(options.share_gpus);
  CHECK(options.warnings.empty());
}

TEST_CASE("flags before the program are read with a space and with an equals sign") {
  for (const Words& flags : {Words{"--num_gpus", "2"}, Words{"--num_gpus=2"},
                             Words{"--num_accelerators", "2"}, Words{"--num_accelerators=2"}}) {
    Words words = flags;
    words.insert(words.end(), {"--share-gpus", "prog", "7"});
    const LaunchOptions options = parse_command_line(words);
    CHECK(options.num_ranks == 2);
    CHECK(options.share_gpus);
    CHECK(options.command == Words{"prog", "7"});
  }
}

TEST_CASE("every other flag reaches its field") {
  const LaunchOptions options =
      parse_command_line({"--include", "localhost:0,2", "--master_addr=10.0.0.1", "--master_port",
                          "29500", "--bind_core_list", "0-3,8", "--bind_cores_to_rank", "prog"});
  CHECK(options.include == "localhost:0,2");
  CHECK(options.master_addr == "10.0.0.1");
  CHECK(options.master_port == 29500);
  CHECK(options.bind_core_list == "0-3,8");
  CHECK(options.bind_cores == true);
  CHECK(parse_command_line({"-e", "localhost:1", "prog"}).exclude == "localhost:1");
  CHECK(parse_command_line({"--no_bind_cores_to_rank", "prog"}).bind_cores == false);
  const LaunchOptions end = parse_command_line(
      {"--timeout=90", "--grace", "7", "--save_pid", "--enable_each_rank_log", "logs", "prog"});
  CHECK(end.timeout_seconds == 90);
  CHECK(end.grace_seconds == 7);
  CHECK(end.save_pid);
  CHECK(end.rank_log_directory == "logs");
}

TEST_CASE("how much the launcher says is DeepSpeed's choice of levels") {
  CHECK(parse_command_line({"prog"}).verbosity == Verbosity::kNotes);
  CHECK(parse_command_line({"--log_level=debug", "prog"}).verbosity == Verbosity::kDebug);
  CHECK(parse_command_line({"--log_level=warning", "prog"}).verbosity == Verbosity::kWarnings);
  CHECK(parse_command_line({"--log_level=critical", "prog"}).verbosity == Verbosity::kErrors);
  CHECK(parse_command_line({"-q", "prog"}).verbosity == Verbosity::kErrors);
}

TEST_CASE("report is a command of its own, ./report a program") {
  CHECK(parse_command_line({"report"}).report);
  const LaunchOptions program = parse_command_line({"./report"});
  CHECK_FALSE(program.report);
  CHECK(program.command == Words{"./report"});
}

TEST_CASE("words after the program are its own, whatever they look like") {
  const Words command = {"prog", "--help", "", "two words", "\"quoted\"", "--", "-x=1", "*"};
  CHECK(parse_command_line(command).command == command);
  Words separated = {"--num_gpus=1", "--"};
  separated.insert(separated.end(), command.begin(), command.end());
  CHECK(parse_command_line(separated).command == command);
}

TEST_CASE("a flag of ours after the program is handed on with a warning") {
  const LaunchOptions options =
      parse_command_line({"finetune", "--num_gpus=2", "--master_port", "1", "--include", "x"});
  CHECK_FALSE(options.num_ranks);
  REQUIRE(options.warnings.size() == 3);
  CHECK(options.warnings[0] ==
        "--num_gpus after finetune is passed to finetune; to set it for zeroth, put it before "
        "finetune");
  CHECK(options.warnings[1].starts_with("--master_port after finetune"));
}

TEST_CASE("every flag of ours is warned of after the program, but help and version are not") {
  for (const char* flag : {"--num_gpus",
                           "--num_accelerators",
                           "-i",
                           "--include",
                           "-e",
                           "--exclude",
                           "--master_addr",
                           "--master_port",
                           "--bind_cores_to_rank",
                           "--no_bind_cores_to_rank",
                           "--bind_core_list",
                           "--share-gpus",
                           "--share_gpus=1",
                           "--enable_each_rank_log",
                           "--save_pid",
                           "--num_nodes",
                           "--hostfile",
                           "-H",
                           "--launcher",
                           "--dry-run"}) {
    CAPTURE(flag);
    CHECK(parse_command_line({"finetune", flag}).warnings.size() == 1);
  }
  CHECK(parse_command_line({"finetune", "--help", "-h", "--version", "--timeout", "-q", "--module",
                            "num_gpus", "-1", "-"})
            .warnings.empty());
}

TEST_CASE("an unknown flag is answered with the nearest one") {
  CHECK(error_of({"--num_gpu", "2", "finetune"}) ==
        "--num_gpu: unknown flag; did you mean --num_gpus? (zeroth --help lists the flags)");
  CHECK(error_of({"--num-gpus=2", "finetune"})
            .starts_with("--num-gpus: unknown flag; did you mean "
                         "--num_gpus?"));
  CHECK(error_of({"--autotunings", "x"}) ==
        "--autotunings: unknown flag (zeroth --help lists the flags)");
}

TEST_CASE("help and version are answers, not programs") {
  CHECK(parse_command_line({"--help"}).answer.find("Usage: zeroth [flags] PROGRAM") !=
        std::string::npos);
  CHECK(parse_command_line({"-h"}).answer.find("\n\n\n") == std::string::npos);
  CHECK(parse_command_line({"-h"}).answer.find("--bind_cores_to_rank") != std::string::npos);
  CHECK(parse_command_line({"--version"}).answer.starts_with("zeroth "));
}

TEST_CASE("a wrong command line is an error of its own") {
  const auto has = [](const Words& words, const std::string& part) {
    INFO(error_of(words));
    CHECK(error_of(words).find(part) != std::string::npos);
  };
  has({}, "Usage: zeroth [flags] PROGRAM");
  has({"--num_gpus", "2"}, "no PROGRAM");
  has({""}, "no PROGRAM");
  has({"--num_gpu", "2", "prog"}, "--num_gpu");
  has({"--num_gpus", "two", "prog"}, "--num_gpus two: must be a whole number (zeroth --help");
  has({"--num_gpus", "0", "prog"}, "--num_gpus 0");
  has({"--num_gpus=-1", "prog"}, "--num_gpus -1");
  has({"--master_port", "65536", "prog"}, "--master_port 65536");
  has({"--master_port=0", "prog"}, "--master_port 0");
  has({"--no_bind_cores_to_rank", "--bind_core_list", "0", "prog"}, "contradicts");
  has({"--no_bind_cores_to_rank", "--bind_cores_to_rank", "prog"}, "contradict each other");
  has({"--timeout", "0", "prog"}, "--timeout 0: at least one second");
  has({"--num_gpus"}, "--num_gpus needs a value");
  has({"--num_gpus", "1", "--num_gpus", "2", "prog"}, "--num_gpus is given twice");
  has({"--save_pid=x", "prog"}, "--save_pid=x: does not accept a value");
  has({"--timeout=soon", "prog"}, "--timeout soon: must be a whole number");
  has({"--timeout=1.5", "prog"}, "--timeout 1.5: must be a whole number");
  has({"--grace=-1", "prog"}, "--grace -1");
  has({"--log_level", "loud", "prog"}, "--log_level loud: must be one of debug, info, ");
  has({"--num_gpus", "2", "report"}, "report: 'zeroth report' accepts no flags and no arguments");
  has({"report", "all"}, "report: 'zeroth report' accepts no flags and no arguments");
  has({"train.py", "--lr", "1"}, "zeroth python3 train.py");
}

TEST_CASE("what is long on a command line is cut in what is said of it") {
  const std::string text(10'000, 'x');
  for (const Words& words :
       {Words{"--log_level", text, "prog"}, Words{"--enable_each_rank_log", text, "prog"},
        Words{"--num_gpus", text, "prog"}, Words{"--" + text, "prog"}, Words{text + ".py"},
        Words{"--no_bind_cores_to_rank", "--bind_core_list", text, "prog"}}) {
    CAPTURE(words[0].substr(0, 30));
    const std::string said = error_of(words);
    CHECK(said.find("... (100") != std::string::npos);
    CHECK(said.size() < 500);
  }
}

}  // namespace zeroth::launcher::cli_test
