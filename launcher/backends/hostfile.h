// DeepSpeed's hostfile: a line per host, as `worker-0 slots=8`; and the hosts and slots of it that
// a run uses. Pure except for read_hostfile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/flags/cli.h"

namespace zeroth::launcher {

inline constexpr const char* kDefaultHostfile = "/job/hostfile";
inline constexpr size_t kMaxHostfileBytes = size_t{1} << 20;
inline constexpr size_t kMaxHosts = 8192;
inline constexpr int kMaxSlots = 1024;  // of one host

struct HostEntry {
  std::string host;  // as for ssh: [USER@]NAME or [USER@]ADDRESS, an IPv6 address without brackets
  int slots = 0;     // at least one
  int line = 0;      // line number in the file

  bool operator==(const HostEntry&) const = default;
};

// Parses the lines of a hostfile in their order. Only a comment may follow the number; blank lines
// and comments (from # on) are skipped. Throws one UsageError for all bad lines, each with its line
// number: a line that is not `HOST slots=N`, N of 0 or above kMaxSlots, an invalid host name, or a
// duplicate host (another case, user, or spelling of an IPv6 address is the same host). Also throws
// if the file has no hosts or more than kMaxHosts. `name` is the file's, for messages.
std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& name);

// Reads and parses a regular file. Throws UsageError also if it cannot be read.
std::vector<HostEntry> read_hostfile(const std::filesystem::path& path);

// Returns why `host` is not [USER@]NAME or [USER@]ADDRESS; empty if it is valid. A valid host does
// not begin with '-' and has no character that is special to a shell or ssh.
std::string host_error(std::string_view host);

// Returns the host without user and brackets, in lower case, IPv6 addresses in a canonical
// spelling. Keys are equal if the names reach a host by the same name.
std::string host_key(std::string_view host);

// Returns whether it is an IPv6 address, with or without a user.
bool is_ipv6(std::string_view host);

// HostSlots is a host with its slots, one per rank: indices of its visible GPUs, or plain numbers
// on the CPU.
struct HostSlots {
  std::string host;        // see HostEntry
  std::vector<int> slots;  // at least one, ascending

  bool operator==(const HostSlots&) const = default;
};

// Applies --include, --exclude, --num_nodes and --num_gpus. Hosts stay in the hostfile's order;
// those without a slot left are dropped. A filter is NAME[:S[,S...]][@NAME...]: a name without
// slots means all of them, and duplicates count once. A name of the hostfile may be written without
// its user; an IPv6 address with slots needs brackets, as [::1]:0. Throws UsageError on conflicting
// flags, on an unknown host or slot, if no host is left, and if --num_gpus exceeds a host's slots,
// unless --share-gpus allows it.
std::vector<HostSlots> choose_hosts(const std::vector<HostEntry>& hosts,
                                    const LaunchOptions& options);

// Returns slots 0 to count - 1.
std::vector<int> first_slots(int count);

std::vector<std::string> host_names(const std::vector<HostSlots>& hosts);

// Counts the ranks of all hosts, or of those before `host`.
int count_ranks(const std::vector<HostSlots>& hosts);
int first_rank_of(const std::vector<HostSlots>& hosts, int host);

}  // namespace zeroth::launcher
