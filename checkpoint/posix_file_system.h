// The machine's file system.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files/directory.h"
#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// PosixFileSystem opens each name part by part from the directory's descriptor and follows no link
// within, so that renames or links by other processes meanwhile redirect nothing.
class PosixFileSystem : public FileSystem {
 public:
  // Creates the missing parts of the path, and syncs those it creates.
  static std::unique_ptr<PosixFileSystem> make(const std::filesystem::path& path);
  // Returns null if the directory does not exist.
  static std::unique_ptr<PosixFileSystem> find(const std::filesystem::path& path);

  const std::filesystem::path& path() const override { return root_.path(); }
  std::unique_ptr<WritableFile> create(const std::string& name, int64_t size) override;
  std::unique_ptr<WritableFile> open_shared(const std::string& name) override;
  std::unique_ptr<RandomAccessFile> open(const std::string& name) override;
  void create_directory(const std::string& name) override;
  std::vector<DirectoryEntry> list(const std::string& directory) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& one, const std::string& other) override;
  void remove_file(const std::string& name) override;
  void remove_directory(const std::string& name) override;
  void sync_directory(const std::string& name) override;
  void sync_file(const std::string& name) override;
  int64_t free_bytes() override;

 private:
  explicit PosixFileSystem(Directory root) : root_(std::move(root)) {}
  // Returns the open directory that contains the last part of a name.
  FileDescriptor open_parent(const std::string& name) const;
  FileDescriptor open_directory(const std::string& name) const;
  // Returns the file, and its size in `size`. Throws if it is not a regular file.
  FileDescriptor open_file(const std::string& name, int flags, int64_t& size) const;
  void unlink(const std::string& name, int flags, std::string_view what) const;

  Directory root_;
};

}  // namespace zeroth::checkpoint
