// Directories by descriptor, for locations that other users can write to. If they rename, remove or
// link something there meanwhile, no operation is redirected.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/machine/file_descriptor.h"

namespace zeroth {

// Returns `path`, absolute and without links. Missing components at its end are appended unchanged.
// Follows a link only if it belongs to this user, to root, or to the owner of the directory that
// contains it, as the kernel does in directories like /tmp. Throws an Error that names any other
// link and its owner.
std::filesystem::path resolve_links(const std::filesystem::path& path);

// A Directory owns the descriptor of an open directory.
class Directory {
 public:
  // Opens `path` component by component, each relative to the previous one, with links as in
  // resolve_links(), and creates missing directories. Throws an Error with the path and the
  // system's reason.
  static Directory create(const std::filesystem::path& path);
  // Opens `path` and creates nothing. Returns nullopt if a component is missing or the last one is
  // no directory.
  static std::optional<Directory> find(const std::filesystem::path& path);

  int get() const { return fd_.get(); }
  const std::filesystem::path& path() const { return path_; }  // absolute, without links
  int num_created() const { return num_created_; }             // components that create() made
  uid_t owner() const;
  bool is_owned_by_this_user() const;

  std::vector<std::string> names() const;
  // Opens the subdirectory `name`. Returns nullopt if there is none, or if `name` is a link or a
  // file.
  std::optional<Directory> open_subdirectory(const std::string& name) const;
  bool contains(const std::string& name) const;  // of any type, a dangling link too
  // Removes everything in the directory. Follows no link.
  void clear() const;
  // Removes `name` and everything in it if `directory` still has this name here.
  void remove(const std::string& name, const Directory& directory) const;

 private:
  Directory(FileDescriptor fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  FileDescriptor fd_;
  std::filesystem::path path_;
  int num_created_ = 0;
};

}  // namespace zeroth
