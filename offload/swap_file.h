// The swap file of one rank on NVMe. It has no name while it is in use, so nothing is left of it
// however the process ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files/directory.h"
#include "base/machine/file_descriptor.h"

namespace zeroth::offload {

// Returns the bytes that this user can still write to the file system of `directory`; nothing if it
// does not report them. Throws an Error if the directory is missing.
std::optional<uint64_t> free_bytes(const std::filesystem::path& directory);

// Returns whether files in `directory` are held in memory (tmpfs), so that they save none.
bool is_in_memory(const std::filesystem::path& directory);

struct SwapLocation {
  std::filesystem::path nvme_path;  // created if it is missing
  std::string run_id;
  int rank = 0;
  std::string kind = {};  // distinguishes files of one rank, as "optimizer"
};

// A SwapFile is nvme_path/zeroth-RUN/rank-N.KIND.swap, or rank-N.swap without a kind, with all of
// its bytes reserved and zero. Its name is removed right after its creation, and so are names that
// another run left between these two steps. That never harms a living run, whose file needs no
// name. Links and directories of other users are neither used nor changed.
class SwapFile {
 public:
  // Creates the file. `bytes` is rounded up to kFileAlignment. Throws an Error with path, needed
  // and free bytes, and the system's reason. Transfers use the page cache if `direct` is false or,
  // with a note, if O_DIRECT is refused.
  SwapFile(const SwapLocation& place, uint64_t bytes, bool direct = true);

  int descriptor() const { return descriptor_.get(); }
  const std::string& path() const { return path_; }  // its name at creation, for messages
  uint64_t size_bytes() const { return size_bytes_; }
  const std::vector<std::string>& notes() const { return notes_; }  // for users

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
