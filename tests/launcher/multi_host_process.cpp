#include "tests/launcher/multi_host_process.h"

#include <fmt/format.h>

#include <algorithm>

namespace zeroth::launcher {

Words on_two_hosts(const Words& options, const Words& mode) {
  Words command = {"--hosts", "127.0.0.1:2,127.0.0.2:2"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", rank_program()});
  command.insert(command.end(), mode.begin(), mode.end());
  return command;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

std::string variable_of(pid_t pid, const std::string& name) {
  const std::string all = '\0' + read_text(fmt::format("/proc/{}/environ", pid));
  const size_t at = all.find('\0' + name + "=");
  if (at == std::string::npos) return "unset";
  const size_t begin = at + 1 + name.size() + 1;
  return all.substr(begin, all.find('\0', begin) - begin);
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  return std::stoi(stat.substr(stat.rfind(')') + 4));
}

pid_t rank_of(const std::vector<pid_t>& pids, const std::string& rank) {
  for (const pid_t pid : pids)
    if (variable_of(pid, "RANK") == rank) return pid;
  return -1;
}

std::set<pid_t> agents_of(const std::vector<pid_t>& ranks) {
  std::set<pid_t> agents;
  for (const pid_t rank : ranks) agents.insert(parent_of(rank));
  return agents;
}

}  // namespace zeroth::launcher
