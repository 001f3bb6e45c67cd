// Outputs that are closed, full, or that nobody reads any more: the exit code says what happened to
// the run.
#include <doctest/doctest.h>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::lost_output_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A shell's command with "zeroth" and "rank" for the two programs; "status N" of the last word goes
// to the error output.
LaunchedProcess::Result shell(std::string script) {
  const std::string programs =
      "zeroth() { " ZEROTH_BIN_DIR "/zeroth \"$@\"; }; rank=" + rank_program() + "; exec 3>&2; ";
  return run_zeroth({"/bin/sh", "-c", programs + script});
}

}  // namespace

TEST_CASE("a reader that leaves does not end the job, whose exit code is that of its ranks") {
  const TempFolder directory;
  const std::string done = (directory.path() / "done").string();
  const std::string lines = "$rank lines 20000; echo >'" + done + "'; exit ";
  for (const int code : {0, 5}) {
    CAPTURE(code);
    const auto result = shell("(zeroth /bin/sh -c \"" + lines + std::to_string(code) +
                              "\"; echo status $? >&3) | head -n 1");
    CHECK(lines_of(result.out).size() == 1);
    CHECK(contains(result.err,
                   "zeroth: warning: standard output is lost from here on: Broken "
                   "pipe; the job continues\n"));
    CHECK(contains(result.err, "status " + std::to_string(code) + "\n"));
    CHECK(std::filesystem::remove(done));
  }
}

TEST_CASE("full and closed outputs neither end a job nor change its exit code") {
  const TempFolder directory;
  const std::string done = (directory.path() / "done").string();
  for (const char* outputs :
       {">/dev/full", "2>/dev/full", ">/dev/full 2>&1", ">&-", "2>&-", "<&- >&- 2>&-", "<&-"}) {
    for (const int code : {0, 5}) {
      CAPTURE(outputs);
      CAPTURE(code);
      const auto result =
          shell("zeroth --num_gpus=2 /bin/sh -c \"echo out; echo err >&2; echo x >>'" + done +
                "'; exit " + std::to_string(code) + "\" " + outputs + "; echo status $? >&3");
      CHECK(contains(result.err, "status " + std::to_string(code) + "\n"));
      if (code == 0) CHECK(read_text(done) == "x\nx\n");
      std::filesystem::remove(done);
    }
  }
}

TEST_CASE("no file of the launcher's lands in an output that was closed") {
  const TempFolder directory;
  const std::string logs = (directory.path() / "logs").string();
  const auto result = shell("zeroth --num_gpus=1 --enable_each_rank_log '" + logs +
                            "' /bin/sh -c 'echo out; echo err >&2; cat' <&- >&- 2>&-; "
                            "cat '" +
                            logs + "'/*");
  const auto text = lines_of(result.out);
  CHECK(std::count(text.begin(), text.end(), "out") == 1);
  CHECK(std::count(text.begin(), text.end(), "err") == 1);
  CHECK(text.size() == 2);
}

TEST_CASE("a command that only prints fails where that gets lost") {
  for (const char* command : {"--help", "--version", "report",
                              "check-config e30=", "checkpoint --help", "finetune --help"}) {
    CAPTURE(command);
    CHECK(shell(std::string("zeroth ") + command + " >/dev/null; echo status $?").out ==
          "status 0\n");
    for (const auto& [output, reason] :
         {std::pair{">/dev/full", "standard output cannot be written: No space left on device"},
          std::pair{">&-", "standard output is closed"}}) {
      CAPTURE(output);
      const auto result =
          shell(std::string("zeroth ") + command + " " + output + "; echo status $? >&3");
      CHECK(contains(result.err, std::string("zeroth: error: ") + reason + "\n"));
      CHECK(contains(result.err, "status 1\n"));
    }
    const std::string err =
        shell(std::string("(zeroth ") + command + " 2>&3; echo status $? >&3) | true").err;
    CHECK_MESSAGE((err == "status 0\n" || err == "status 141\n"), err);
  }
}

TEST_CASE("an answer whose reader leaves ends as other commands do, without a word") {
  const TempFolder directory;
  const std::string left = (directory.path() / "left").string();
  const auto result = shell("(until [ -e " + left + " ]; do sleep 0.05; done; zeroth report; " +
                            "echo status $? >&3) | { exec <&-; : >" + left + "; }");
  CHECK(contains(result.err, "status 141\n"));
  CHECK_FALSE(contains(result.err, "error"));
}

}  // namespace zeroth::launcher::lost_output_test
