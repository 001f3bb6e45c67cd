#include "base/machine/signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <utility>

#include "base/machine/file_descriptor.h"
#include "base/machine/standard_streams.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

// Everything that handle_sigbus() calls runs inside a signal handler: no locks, no heap. fmt
// satisfies that when it formats numbers and texts into an array.

constexpr int kExitCode = 1;

std::array<char, 100> program_name = {};

// A MemoryMapping is a line of /proc/self/maps: "55e0-55f0 r--p 00001000 08:01 1234   /path".
struct MemoryMapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uint64_t offset = 0;    // in the file
  std::string_view path;  // empty: anonymous memory
};

class ProcMapsReader {
 public:
  // Reads the next line without its "\n", truncated if it is longer than any path. Returns false at
  // the end.
  bool next(std::string_view& line) {
    size_t size = 0;
    char letter = 0;
    while (get(letter) && letter != '\n') {
      if (size < line_.size()) line_[size++] = letter;
    }
    line = {line_.data(), size};
    return letter == '\n';
  }

 private:
  bool get(char& letter) {
    if (at_ == size_) {
      const ssize_t count = ::read(file_.get(), buffer_.data(), buffer_.size());
      if (count <= 0) return false;
      at_ = 0;
      size_ = static_cast<size_t>(count);
    }
    letter = buffer_[at_++];
    return true;
  }

  FileDescriptor file_{::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
  std::array<char, 4096> buffer_;
  std::array<char, 4400> line_;
  size_t at_ = 0, size_ = 0;
};

template <typename Number>
Number hexadecimal(std::string_view digits) {
  Number number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

MemoryMapping parse(std::string_view line) {
  MemoryMapping mapping;
  mapping.begin = hexadecimal<uintptr_t>(next_field(line, '-'));
  mapping.end = hexadecimal<uintptr_t>(next_field(line, ' '));
  next_field(line, ' ');  // permissions
  mapping.offset = hexadecimal<uint64_t>(next_field(line, ' '));
  next_field(line, ' ');  // device
  next_field(line, ' ');  // inode
  mapping.path = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
  return mapping;
}

// A Fault is the location of a faulting address: the path of its mapping, terminated for stat, and
// the offset.
struct Fault {
  std::array<char, 4300> path = {};
  uint64_t offset = 0;

  bool is_file() const { return path[0] == '/'; }
  bool is_shared_memory() const { return text().starts_with("/memfd:") || in("/dev/shm/"); }
  bool in(std::string_view directory) const { return text().starts_with(directory); }
  std::string_view text() const { return path.data(); }
};

void find_mapping(uintptr_t address, Fault& fault) {
  ProcMapsReader maps;
  for (std::string_view line; maps.next(line);) {
    const MemoryMapping mapping = parse(line);
    if (address < mapping.begin || address >= mapping.end) continue;
    fault.offset = mapping.offset + (address - mapping.begin);
    mapping.path.copy(fault.path.data(), fault.path.size() - 1);
    return;
  }
}

using TextBuffer = std::array<char, 5000>;

template <typename... Parts>
std::string_view format(TextBuffer& text, fmt::format_string<Parts...> format, Parts&&... parts) {
  const auto result =
      fmt::format_to_n(text.data(), text.size(), format, std::forward<Parts>(parts)...);
  return {text.data(), std::min(text.size(), result.size)};
}

std::string_view reason_of(const Fault& fault, int code, TextBuffer& text) {
  if (code == BUS_MCEERR_AR || code == BUS_MCEERR_AO) return "hardware memory error";
  struct stat status {};
  if (::stat(fault.path.data(), &status) == 0 &&
      static_cast<uint64_t>(status.st_size) <= fault.offset)
    return format(text, "it has only {} bytes now: it was truncated while in use", status.st_size);
  if (!fault.is_file()) return "no file is mapped there";
  if (fault.is_shared_memory()) return "out of memory";
  return "disk error, or out of memory";
}

void handle_sigbus(int, siginfo_t* info, void*) {
  Fault fault;
  find_mapping(reinterpret_cast<uintptr_t>(info->si_addr), fault);
  for (char& letter : fault.path) {
    if (letter != 0 && (static_cast<unsigned char>(letter) < ' ' || letter == 127)) letter = '?';
  }
  TextBuffer text, reason;
  const std::string_view who = program_name.data();
  if (!fault.is_file()) {
    write_last_message(format(text, "{}: error: the memory at {} cannot be accessed: {}\n", who,
                              info->si_addr, reason_of(fault, info->si_code, reason)));
    ::signal(SIGBUS, SIG_DFL);  // the instruction faults again after the return
    return;
  }
  write_last_message(format(text, "{}: error: cannot {} {} at offset {}: {}\n", who,
                            fault.is_shared_memory() ? "use" : "read", fault.text(), fault.offset,
                            reason_of(fault, info->si_code, reason)));
  ::_exit(kExitCode);
}

}  // namespace

std::vector<int> termination_signals() {
  std::vector<int> signals = {SIGINT, SIGTERM};
  if (!is_ignored(SIGHUP)) signals.push_back(SIGHUP);
  return signals;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void install_sigbus_handler(std::string_view program) {
  program_name.fill(0);
  program.copy(program_name.data(), program_name.size() - 1);
  struct sigaction action {};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace zeroth
