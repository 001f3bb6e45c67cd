// completions/zeroth.bash, as bash would call it, against the programs' own --help.
#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "launcher/flags/cli.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::completion_test {
namespace {

using Words = std::vector<std::string>;

// A folder with zeroth, and a finetune whose --help is known.
class Programs {
 public:
  Programs() {
    make("zeroth", "exec " ZEROTH_BIN_DIR "/zeroth \"$@\"\n");
    make("finetune",
         "cat <<'END'\n"
         "Files:\n"
         "  --model DIR                 a folder --not-a-flag\n"
         "  --deepspeed,--ds FILE       a file\n"
         "  --gradient-checkpointing [=N]\n"
         "                              --neither\n"
         "  -h,--help                   Print this text\n"
         "END\n");
  }

  const std::filesystem::path& directory() const { return directory_.path(); }

  // What bash offers for the last of these words; words are split at = as bash does.
  Words offered(const std::string& words, const std::string& path_of_zeroth = "zeroth") const {
    const std::string script = fmt::format(
        "cd {0}; PATH={0}:$PATH; source {1}/completions/zeroth.bash; COMP_WORDS=({2} {3}); "
        "COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); _$(basename {2}); "
        "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        directory().string(), ZEROTH_SOURCE_DIR, path_of_zeroth, words);
    std::ofstream(directory() / "script.bash") << script;
    FILE* pipe = ::popen(("bash " + (directory() / "script.bash").string()).c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string out;
    for (int byte; (byte = std::fgetc(pipe)) != EOF;) out += static_cast<char>(byte);
    CHECK(::pclose(pipe) == 0);
    Words lines = lines_of(out);
    std::erase(lines, "");
    std::sort(lines.begin(), lines.end());
    return lines;
  }

 private:
  void make(const std::string& name, const std::string& script) const {
    std::ofstream(directory() / name) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(directory() / name, std::filesystem::perms::owner_all);
  }

  TempFolder directory_;
};

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether the parser knows the flag, with a value or without.
bool is_known(const std::string& flag) {
  try {
    parse_command_line({flag, "1", "prog"});
  } catch (const UsageError& error) {
    return std::string(error.what()).find("unknown flag") == std::string::npos;
  }
  return true;
}

}  // namespace

TEST_CASE("exactly the flags that zeroth --help lists are offered, and the parser takes them") {
  const Programs programs;
  const Words flags = programs.offered("-");
  CHECK(flags.size() > 20);
  for (const std::string& flag : flags) {
    CAPTURE(flag);
    CHECK(is_known(flag));
  }
  const std::string help = parse_command_line({"--help"}).answer;
  for (const char* flag : {"--num_gpus", "--num_accelerators", "-i", "--include", "--timeout",
                           "--enable_each_rank_log", "-q", "--quiet", "--version", "--no_ssh"}) {
    CAPTURE(flag);
    CHECK(help.find(flag) != std::string::npos);
    CHECK(contains(flags, flag));
  }
  CHECK(programs.offered("--num_g") == Words{"--num_gpus"});
  CHECK(contains(flags, "--hostfile"));
  CHECK_FALSE(contains(flags, "--autotuning"));
}

TEST_CASE("values are offered by their kind, after a space and after =") {
  const Programs programs;
  const Words levels = {"critical", "debug", "error", "info", "warning"};
  CHECK(programs.offered("--log_level ''") == levels);
  CHECK(programs.offered("--log_level = w") == Words{"warning"});
  CHECK(programs.offered("--log_level =") == levels);
  CHECK(programs.offered("--num_gpus ''").empty());
  CHECK(programs.offered("--launcher s") == Words{"slurm", "ssh"});
  std::ofstream(programs.directory() / "hosts") << "worker-0 slots=1\n";
  CHECK(programs.offered("--hostfile ho") == Words{"hosts"});
  std::filesystem::create_directory(programs.directory() / "logs");
  CHECK(programs.offered("--enable_each_rank_log lo") == Words{"logs"});
}

TEST_CASE("the program is offered where it is due") {
  const Programs programs;
  CHECK(programs.offered("rep") == Words{"report"});
  CHECK(contains(programs.offered("--num_gpus 2 fine"), "finetune"));
  CHECK(contains(programs.offered("--num_gpus = 2 --save_pid fine"), "finetune"));
}

TEST_CASE("flags of finetune are offered behind it, and for it alone") {
  const Programs programs;
  const Words flags = {"--deepspeed", "--ds",    "--gradient-checkpointing",
                       "--help",      "--model", "-h"};
  CHECK(programs.offered("--num_gpus 2 finetune -") == flags);
  CHECK(programs.offered("finetune --model x --de") == Words{"--deepspeed"});
  CHECK(programs.offered("-", "finetune") == flags);
  std::filesystem::create_directory(programs.directory() / "llama");
  std::ofstream(programs.directory() / "llama.json") << "{}";
  CHECK(programs.offered("finetune --model lla") == Words{"llama"});
  CHECK(programs.offered("finetune --deepspeed lla") == Words{"llama", "llama.json"});
  CHECK(programs.offered("finetune --gradient-checkpointing --mod") == Words{"--model"});
}

TEST_CASE("checkpoint has its commands, folders and flags offered") {
  const Programs programs;
  CHECK(programs.offered("checkp") == Words{"checkpoint"});
  CHECK(programs.offered("checkpoint ve") == Words{"verify"});
  std::filesystem::create_directory(programs.directory() / "out1");
  std::ofstream(programs.directory() / "out2") << "";
  CHECK(programs.offered("checkpoint list ou") == Words{"out1"});
  CHECK(programs.offered("checkpoint prune out1 --k") == Words{"--keep"});
}

TEST_CASE("export has its folders, flags and precisions offered") {
  const Programs programs;
  CHECK(programs.offered("expo").front() == "export");
  std::filesystem::create_directory(programs.directory() / "out1");
  CHECK(programs.offered("export ou") == Words{"out1"});
  CHECK(programs.offered("export out1 hf --ov") == Words{"--overwrite"});
  CHECK(programs.offered("export out1 hf --dtype b") == Words{"bf16"});
}

TEST_CASE("the finetune that was built has all its flags offered") {
  const std::filesystem::path built = ZEROTH_BIN_DIR "/finetune";
  if (!std::filesystem::exists(built)) {
    MESSAGE("skipped: finetune is not built");
    return;
  }
  const Programs programs;
  const Words flags = programs.offered("-", built.string());
  for (const char* flag : {"--model", "--data", "--deepspeed", "--lr", "--help", "--print-config"})
    CHECK(contains(flags, flag));
}

}  // namespace zeroth::launcher::completion_test
