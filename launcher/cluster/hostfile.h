// DeepSpeed's hostfile: a line per host, as `worker-0 slots=8`. Pure but for read_hostfile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::launcher {

inline constexpr const char* kDefaultHostfile = "/job/hostfile";
inline constexpr size_t kMaxHostfileBytes = size_t{1} << 20;
inline constexpr size_t kMaxHosts = 8192;
inline constexpr int kMaxSlots = 1024;  // of one host

struct HostEntry {
  std::string host;  // as ssh takes it: [USER@]NAME or [USER@]ADDRESS, an IPv6 one without brackets
  int slots = 0;     // at least one
  int line = 0;      // where it stands

  bool operator==(const HostEntry&) const = default;
};

// The lines of a hostfile in their order. Behind the number only a comment may stand; blank lines
// and comments (from # on) are skipped. Throws one UsageError for all bad lines, each with its
// number: what is no `HOST slots=N`, N of 0 or beyond kMaxSlots, a host that no name can be, one
// that stands twice (another case or user, or another spelling of an IPv6 address, is the same
// host). So does a file without hosts or with more than kMaxHosts. `name` is the file's, for
// messages.
std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& name);

// The same of a regular file. Throws one also when it cannot be read.
std::vector<HostEntry> read_hostfile(const std::filesystem::path& path);

// Empty where `host` is [USER@]NAME or [USER@]ADDRESS, else why it is not. What passes begins with
// no '-' and holds nothing that a shell or ssh would take for something else.
std::string host_error(std::string_view host);

// Without the user and the brackets, in lower case, IPv6 addresses in one spelling: equal for names
// that reach one host by one name.
std::string host_key(std::string_view host);

// Whether it is an IPv6 address, with a user or without.
bool is_ipv6(std::string_view host);

}  // namespace zeroth::launcher
