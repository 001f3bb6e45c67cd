// The file of one rank on NVMe: it has no name while it is used, so nothing is left of it however
// the process ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/file_descriptor.h"

namespace zeroth::offload {

// What this user may still write to the file system that holds `directory`; none where it does not
// say. Throws an Error for a folder that is missing.
std::optional<uint64_t> free_bytes(const std::filesystem::path& directory);

// Whether files in `directory` are held in memory (tmpfs), so that they save none.
bool is_in_memory(const std::filesystem::path& directory);

struct SwapLocation {
  std::filesystem::path nvme_path;  // made if it is missing
  std::string run_id;
  int rank = 0;
  std::string kind = {};  // tells files of one rank apart, as "optimizer"
};

// nvme_path/zeroth-RUN/rank-N.KIND.swap, or rank-N.swap without a kind: all of its bytes reserved
// and zero. Its name is removed right after it was made; the names that another run left between
// these two steps are removed too. That never hurts a living run, whose file needs no name. Links
// and folders of other users are neither used nor touched.
class SwapFile {
 public:
  // `bytes` is rounded up to kFileAlignment. Throws an Error with path, needed and free bytes, and
  // the system's reason. Without `direct`, and with a note where O_DIRECT is refused, transfers go
  // through the page cache.
  SwapFile(const SwapLocation& place, uint64_t bytes, bool direct = true);

  int descriptor() const { return descriptor_.get(); }
  const std::string& path() const { return path_; }  // the name it was made with, for messages
  uint64_t size_bytes() const { return size_bytes_; }
  const std::vector<std::string>& notes() const { return notes_; }  // for the user

 private:
  void make(const Directory& nvme, const std::string& run, const std::string& name);
  void reserve(const std::filesystem::path& nvme_path);
  void set_direct();
  [[noreturn]] void fail(const char* action, int error);

  std::string path_;
  uint64_t size_bytes_;
  FileDescriptor descriptor_;
  std::vector<std::string> notes_;
};

}  // namespace zeroth::offload
