#include "tests/support/child_cgroup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/machine/cgroup.h"

namespace zeroth {
namespace {

bool put(const std::filesystem::path& file, const std::string& value) {
  std::ofstream out(file);
  out << value << std::flush;
  return static_cast<bool>(out);
}

}  // namespace

ChildCgroup::ChildCgroup(int64_t limit_bytes) {
  const auto own = find_cgroup("memory");
  if (!own) {
    obstacle_ = "no memory control group";
    return;
  }
  const auto directory = own->directory / fmt::format("zeroth_test_{}", ::getpid());
  std::error_code error;
  std::filesystem::create_directory(directory, error);
  if (error) {
    obstacle_ = directory.string() + ": " + error.message();
    return;
  }
  directory_ = directory;
  const char* limit = own->unified ? "memory.max" : "memory.limit_in_bytes";
  if (!put(directory / limit, std::to_string(limit_bytes))) {
    obstacle_ = fmt::format("{}/{} cannot be written", directory.string(), limit);
    return;
  }
  if (own->unified)
    put(directory / "memory.swap.max", "0");  // not there without swap
  else
    put(directory / "memory.swappiness", "0");
}

ChildCgroup::~ChildCgroup() {
  if (directory_.empty()) return;
  for (int i = 0; i < 1000 && ::rmdir(directory_.c_str()) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace zeroth
