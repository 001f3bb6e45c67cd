#include "launcher/run/output.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <thread>
#include <vector>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::output_test {
namespace {

// What zeroth shows on a terminal of 60 columns; `term` is the value of TERM, null: it is not set.
std::string show_on_terminal(const std::vector<std::string>& arguments,
                             const char* term = "xterm") {
  int terminal = -1, far_end = -1;
  winsize size{.ws_row = 20, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::openpty(&terminal, &far_end, nullptr, nullptr, &size) == 0);
  std::vector<std::string> words = {"env", "-u", "TERM", ZEROTH_BIN_DIR "/zeroth"};
  if (term != nullptr) words.insert(words.begin() + 3, fmt::format("TERM={}", term));
  words.insert(words.end(), arguments.begin(), arguments.end());
  LaunchedProcess job(LaunchedProcess::Program{words}, {}, far_end);
  ::close(far_end);
  CHECK(job.wait().status == 0);
  std::string shown;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    shown.append(buffer.data(), static_cast<size_t>(count));
  ::close(terminal);
  return shown;
}

// Lines of `rank_program lines`, checked to be whole; how many came from each rank.
std::map<char, int> count_whole_lines(const std::string& text) {
  std::map<char, int> counts;
  for (const std::string& line : lines_of(text)) {
    REQUIRE(line.size() > 205);
    const char letter = static_cast<char>('a' + line[1] - '0');
    REQUIRE(line.substr(4, 201) == std::string(200, letter) + " ");
    ++counts[line[1]];
  }
  return counts;
}

// Lines as "text$", segments ended by '\r' as "text<".
struct Collected {
  std::vector<std::string> pieces;

  LineSplitter::Sink sink() {
    return [this](std::string_view text, LineEnd end) {
      pieces.push_back(std::string(text) + (end == LineEnd::kNewline ? "$" : "<"));
    };
  }
};

std::vector<std::string> split(bool returns, const std::vector<std::string>& chunks) {
  LineSplitter splitter(returns);
  Collected collected;
  for (const std::string& chunk : chunks) splitter.feed(chunk, collected.sink());
  splitter.flush(collected.sink());
  return collected.pieces;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("lines of ranks are whole under heavy output, in files and in one shared pipe") {
  constexpr int kLines = 3000;
  const std::vector<std::string> command = {"--num_gpus=3", rank_program(), "lines",
                                            std::to_string(kLines)};
  const std::map<char, int> all = {{'0', kLines}, {'1', kLines}, {'2', kLines}};
  const auto files = run_zeroth(command);
  CHECK(files.status == 0);
  const size_t warning_end = files.err.starts_with("zeroth: ") ? files.err.find('\n') + 1 : 0;
  CHECK(count_whole_lines(files.out + files.err.substr(warning_end)) == all);

  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  LaunchedProcess job(command, {}, ends[1]);
  ::close(ends[1]);
  std::string text;
  std::array<char, 1000> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  ::close(ends[0]);
  CHECK(job.wait().status == 0);
  const size_t start = text.starts_with("zeroth: ") ? text.find('\n') + 1 : 0;
  CHECK(count_whole_lines(text.substr(start)) == all);
}

TEST_CASE("a last line without a newline is shown, and gets one") {
  CHECK(run_zeroth({rank_program(), "text", "first\\nlast"}).out == "first\nlast\n");
  CHECK(run_zeroth({rank_program(), "text", "a\\rb\\n"}).out == "a\rb\n");
}

TEST_CASE("on a terminal rank 0 redraws its progress line, and other lines replace it") {
  const std::string clear = "\r\x1b[K";
  CHECK(show_on_terminal({rank_program(), "text", "1%\\r2%\\rdone\\n3%\\r"}) ==
        clear + "1%\r" + clear + "2%\r" + clear + "done\r\n" + clear + "3%\r\r\n");
  CHECK(show_on_terminal({rank_program(), "env", "ZEROTH_TTY", "ZEROTH_COLUMNS"}) ==
        "ZEROTH_TTY=1\r\nZEROTH_COLUMNS=60\r\n");
}

TEST_CASE("term_dumb: a terminal without control codes gets plain lines, as a file does") {
  for (const char* term : {static_cast<const char*>(nullptr), "", "dumb", "unknown"}) {
    CAPTURE(term);
    CHECK(show_on_terminal({rank_program(), "text", "1%\\n2%\\n"}, term) == "1%\r\n2%\r\n");
    CHECK(show_on_terminal({rank_program(), "env", "ZEROTH_TTY", "ZEROTH_COLUMNS"}, term) ==
          "ZEROTH_TTY unset\r\nZEROTH_COLUMNS unset\r\n");
  }
}

TEST_CASE("a reader that sleeps stops neither signals nor the death of ranks") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  LaunchedProcess job({"--num_gpus=2", rank_program(), "lines", "1000000"}, {}, ends[1]);
  ::close(ends[1]);
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(std::all_of(pids.begin(), pids.end(), is_alive));
  job.signal(SIGTERM);
  CHECK(eventually([&] { return std::none_of(pids.begin(), pids.end(), is_alive); }));
  job.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::close(ends[0]);
  CHECK(job.wait().status == 143);
}

TEST_CASE("a rank's last lines are kept, and no more") {
  boost::asio::io_context io;
  OutputSink sink(io, STDOUT_FILENO, {});
  Tail tail;
  for (int i = 0; i < 30; ++i) tail.add(std::to_string(i), sink);
  REQUIRE(tail.lines().size() == 20);
  CHECK(tail.lines().front() == "10");
  CHECK(tail.lines().back() == "29");
  tail.add(std::string(100'000, 'x'), sink);
  CHECK(tail.lines().back().size() == 1000);
}

TEST_CASE("a rank's last line is known to stand last in an output until somebody writes there") {
  boost::asio::io_context io;
  OutputSink out(io, STDOUT_FILENO, {}), err(io, STDERR_FILENO, {});
  Tail tail;
  CHECK_FALSE(tail.is_last_in(err));
  err.write_line("mine");
  tail.add("mine", err);
  out.write_line("elsewhere");
  CHECK(tail.is_last_in(err));
  CHECK_FALSE(tail.is_last_in(out));
  err.write_line("another's");
  CHECK_FALSE(tail.is_last_in(err));
}

TEST_CASE("lines are whole whatever the chunks, and a last partial one is flushed") {
  CHECK(split(false, {"a\nb", "c\n", "\n", "d"}) == Pieces{"a$", "bc$", "$", "d$"});
  CHECK(split(false, {"a\rb\r\n"}) == Pieces{"a\rb\r$"});
}

TEST_CASE("a return ends a progress segment at once") {
  CHECK(split(true, {"1%\r", "2%\r", "done\n"}) == Pieces{"1%<", "2%<", "done$"});
  CHECK(split(true, {"\r1%", "\r2%\r"}) == Pieces{"1%<", "2%<"});
}

TEST_CASE("a newline right after a return keeps the segment as a line") {
  CHECK(split(true, {"100%\r", "\n"}) == Pieces{"100%<", "100%$"});
  CHECK(split(true, {"a\r\n", "\n"}) == Pieces{"a<", "a$", "$"});
}

TEST_CASE("an endless line is cut") {
  const Pieces pieces = split(false, {std::string(LineSplitter::kMaxLineBytes + 1, 'x')});
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].size() == LineSplitter::kMaxLineBytes + 1);
  CHECK(pieces[1] == "x$");
}

}  // namespace zeroth::launcher::output_test
