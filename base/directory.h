// Folders by descriptor, for places in which others may write: what they rename, remove or link
// there meanwhile redirects nothing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace zeroth {

// `path`, absolute and without links; what is missing of it follows as it stands. A link counts
// only where it is of this user, of root, or of the owner of the folder in which it lies, as the
// kernel has it for folders like /tmp. Throws an Error that names any other one and its owner.
std::filesystem::path resolve_links(const std::filesystem::path& path);

class Directory {
 public:
  // Opens it part by part, each from the one before, with links as in resolve_links(), and makes
  // what is missing. Throws an Error with the path and the system's reason.
  static Directory create(const std::filesystem::path& path);
  // Makes nothing: empty where a part is missing or the last one is no folder.
  static std::optional<Directory> find(const std::filesystem::path& path);

  int get() const { return fd_.get(); }
  const std::filesystem::path& path() const { return path_; }  // absolute, without links
  int num_created() const { return num_created_; }             // how many of its last parts
  uid_t owner() const;
  bool is_owned_by_this_user() const;

  std::vector<std::string> names() const;
  // The folder `name` in it; empty where there is none, or a link or a file in its place.
  std::optional<Directory> open_subdirectory(const std::string& name) const;
  bool contains(const std::string& name) const;  // whatever it is, a link to nothing too
  // Removes all that is in it, and follows no link.
  void clear() const;
  // Removes `name` and all that is in it, if it is `directory`, which has this name here.
  void remove(const std::string& name, const Directory& directory) const;

 private:
  Directory(FileDescriptor fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  FileDescriptor fd_;
  std::filesystem::path path_;
  int num_created_ = 0;
};

}  // namespace zeroth
