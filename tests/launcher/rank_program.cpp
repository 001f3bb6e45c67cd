// What the launcher's tests run as ranks: one mode per way to live or die.
//   env NAME...           prints NAME=value, or NAME unset
//   args ARG...           prints each argument as <ARG>
//   cores                 prints the cores it may run on
//   cat                   copies its input to its output
//   text TEXT             prints TEXT, with \n and \r understood, and nothing else
//   exit CODE | raise SIGNAL | sleep
//   stubborn              ignores SIGINT and SIGTERM, sleeps
//   polite                sleeps until SIGTERM, then ends with 0
//   lines COUNT           prints COUNT long lines in small pieces to both outputs
//   parent                starts a child; both sleep
//   brood MODE...         starts a child, one in a session of its own and a daemon, which sleep and
//                         ignore what they can; then does MODE
//   finish MS             sleeps until SIGTERM or SIGINT, takes MS to finish, ends with 128 +
//   signal fail-late             the same, but fails on the way with 5 eat                   takes
//   memory until it is killed, at most 1 GiB only RANK MODE...     does MODE if it is this rank,
//   else sleeps except RANK MODE...   sleeps if it is this rank, else does MODE
//   by-round MODE... , MODE...  does the MODE of its round, the last one in those behind
// A process that sleeps or prints lines first leaves a file named by its pid in the folder PID_DIR.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace {

using Arguments = std::vector<std::string>;

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
}

void print(const std::string& line) {
  write_all(STDOUT_FILENO, line + "\n");
}

void note_pid() {
  const std::string directory = variable("PID_DIR");
  if (!directory.empty())
    std::ofstream(std::filesystem::path(directory) / std::to_string(::getpid()));
}

int do_mode(const Arguments& args);

int sleep_long() {
  note_pid();
  ::sleep(60);
  return 99;
}

int print_lines(int count) {
  note_pid();
  const std::string rank = variable("RANK");
  for (int i = 0; i < count; ++i) {
    const int fd = i % 2 == 0 ? STDOUT_FILENO : STDERR_FILENO;
    for (int piece = 0; piece < 10; ++piece) write_all(fd, std::string(20, 'a' + rank[0] - '0'));
    write_all(fd, fmt::format(" {}\n", i));
  }
  return 0;
}

int print_cores() {
  cpu_set_t mask;
  ::sched_getaffinity(0, sizeof(mask), &mask);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  print(fmt::format("{}", fmt::join(cores, ",")));
  return 0;
}

std::string unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"\\n", "\n"}, std::pair{"\\r", "\r"}})
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, 2, to);
  return text;
}

int copy_input() {
  char buffer[4096];
  for (ssize_t count; (count = ::read(STDIN_FILENO, buffer, sizeof(buffer))) > 0;)
    write_all(STDOUT_FILENO, std::string(buffer, static_cast<size_t>(count)));
  return 0;
}

void end_with_zero(int) {
  ::_exit(0);
}

// In a process of its own, that no signal but SIGKILL ends.
void sleep_apart(bool own_session, bool orphaned) {
  if (::fork() != 0) return;
  if (own_session) ::setsid();
  if (orphaned && ::fork() != 0) ::_exit(0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  ::_exit(sleep_long());
}

int have_brood(const Arguments& then) {
  sleep_apart(false, false);
  sleep_apart(true, false);
  sleep_apart(true, true);
  const std::filesystem::path directory = variable("PID_DIR");
  while (std::distance(std::filesystem::directory_iterator(directory), {}) < 3) ::usleep(1000);
  return do_mode(then);
}

volatile std::sig_atomic_t reported = 0;

int finish(int milliseconds, bool fail) {
  for (const int signal : {SIGTERM, SIGINT})
    ::signal(signal, [](int number) { reported = number; });
  note_pid();
  while (reported == 0) ::usleep(1000);
  if (fail) return 5;
  ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
  print("saved");
  return 128 + reported;
}

int eat() {
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<std::unique_ptr<char[]>> eaten;
  for (int i = 0; i < 1024; ++i) {
    eaten.push_back(std::make_unique<char[]>(kPiece));
    for (size_t at = 0; at < kPiece; at += 4096) eaten.back()[at] = 1;
  }
  return 98;
}

int block_signals(const Arguments& numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  if (numbers.empty()) ::sigfillset(&set);
  for (const std::string& number : numbers) ::sigaddset(&set, std::stoi(number));
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return sleep_long();
}

int live(const std::string& mode) {
  if (mode == "stubborn") {
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
  } else if (mode == "polite") {
    ::signal(SIGTERM, end_with_zero);
  } else if (mode == "parent") {
    ::fork();
  }
  return sleep_long();
}

int die(const std::string& mode, int number) {
  if (mode == "exit") {
    print("leaving");
    return number;
  }
  write_all(STDERR_FILENO, "about to die");
  return ::raise(number);
}

int print_words(const std::string& mode, const Arguments& words) {
  for (const std::string& word : words) {
    if (mode == "args") print("<" + word + ">");
    if (mode == "env") print(word + (std::getenv(word.c_str()) ? "=" + variable(word) : " unset"));
    if (mode == "text") write_all(STDOUT_FILENO, unescaped(word));
  }
  return 0;
}

int do_mode_of_round(const Arguments& args) {
  std::vector<Arguments> modes(1);
  for (const std::string& word : args)
    if (word == ",")
      modes.emplace_back();
    else
      modes.back().push_back(word);
  const std::string round = variable("ZEROTH_ROUND");
  const size_t number = round.empty() ? 0 : std::stoul(round);
  return do_mode(modes[std::min(number, modes.size() - 1)]);
}

int do_mode(const Arguments& args) {
  const std::string& mode = args[0];
  const Arguments rest(args.begin() + 1, args.end());
  if (mode == "only" || mode == "except") {
    const bool named = rest[0] == variable("RANK");
    return named == (mode == "only") ? do_mode({rest.begin() + 1, rest.end()}) : sleep_long();
  }
  if (mode == "by-round") return do_mode_of_round(rest);
  if (mode == "brood") return have_brood(rest);
  if (mode == "finish") return finish(std::stoi(rest[0]), false);
  if (mode == "fail-late") return finish(0, true);
  if (mode == "eat") return eat();
  if (mode == "block") return block_signals(rest);
  if (mode == "exit" || mode == "raise") return die(mode, std::stoi(rest[0]));
  if (mode == "args" || mode == "env" || mode == "text") return print_words(mode, rest);
  if (mode == "lines") return print_lines(std::stoi(rest[0]));
  if (mode == "cores") return print_cores();
  if (mode == "cat") return copy_input();
  return live(mode);
}

}  // namespace

int main(int argc, char** argv) {
  return do_mode({argv + 1, argv + argc});
}
