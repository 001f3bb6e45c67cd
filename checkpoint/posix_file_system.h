// The disk of the machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/directory.h"
#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// All names are opened part by part from the descriptor of the folder, and no link within is
// followed: what others rename or link there meanwhile redirects nothing.
class PosixFileSystem : public FileSystem {
 public:
  // Makes what is missing of the path, and syncs what it has made.
  static std::unique_ptr<PosixFileSystem> make(const std::filesystem::path& path);
  // Null where there is no such folder.
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
  // The open folder in which the last part of a name lies.
  FileDescriptor open_parent(const std::string& name) const;
  FileDescriptor open_directory(const std::string& name) const;
  // Throws where it is no regular file. The size that it has, too.
  FileDescriptor open_file(const std::string& name, int flags, int64_t& size) const;

  Directory root_;
};

}  // namespace zeroth::checkpoint
