#include "base/machine/machine_id.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace zeroth {

std::string machine_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string machine_id(const std::optional<std::string>& override_id) {
  if (override_id) return "named " + *override_id;
  struct stat pids {};
  const bool known = ::stat("/proc/self/ns/pid", &pids) == 0;
  return fmt::format("{} {} {}", boot_id(), known ? pids.st_dev : 0, known ? pids.st_ino : 0);
}

}  // namespace zeroth
