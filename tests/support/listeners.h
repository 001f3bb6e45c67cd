// The TCP ports at which a process can be reached.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace zeroth::testing {

// Local addresses, as in /proc/net/tcp and tcp6 ("0100007F:7325"), of the listening sockets that
// process `pid` ("self": this one) holds.
inline std::vector<std::string> listeners_of(const std::string& pid) {
  std::set<std::string> sockets;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + pid + "/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored);
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::string> found;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream lines("/proc/" + pid + "/net/" + table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      if (state == "0A" && sockets.count(inode) > 0) found.push_back(local);
    }
  }
  return found;
}

}  // namespace zeroth::testing
