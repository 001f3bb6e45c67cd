// The folder in which something is written before it takes its final name, and what a kill leaves
// of it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/describe_exception.h"
#include "base/error.h"
#include "base/file_descriptor.h"

namespace zeroth::model {

// What the standard library throws becomes an Error that names the path.
template <typename Action>
auto with_path_errors(Action action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error("{}", describe_exception(error));
  }
}

// Beside `target`, so that a rename stays within one file system: "out.zeroth-tmp-Ab3dEf". Locked
// while this object lives: what is not locked was left behind. `target` has no links.
class TemporaryDirectory {
 public:
  // Makes the folders above it too. It has the group and mode of `target`, or where there is none
  // those that the umask gives a new folder. Errors name the path and the system's reason.
  explicit TemporaryDirectory(const std::filesystem::path& target);
  // Removes what stands at path(), unless it is kept.
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }
  // Keeps it under another name, which it returns.
  std::filesystem::path move_aside();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  FileDescriptor lock_;
  bool kept_ = false;
};

// Gives `directory`, made here for `target`, a name that clear_leftovers passes by:
// "out.new-Ab3dEf". Returns that name, or `directory` where the system refuses.
std::filesystem::path move_aside(const std::filesystem::path& directory,
                                 const std::filesystem::path& target);

// A write that failed because the disk or a quota is full: as good as any later, once there is
// room.
class OutOfSpace : public Error {
 public:
  using Error::Error;
};

// Throws an Error for a write into `directory` that failed, OutOfSpace where it lacked room:
// `what`, the system's reason and, where the disk may be it, what is free: "No space left on
// device; 4096 bytes are free there".
[[noreturn]] void throw_write_error(const std::string& what, int error,
                                    const std::filesystem::path& directory);

// Puts `fresh` in the place of the folder `target` in one step, where the file system can, and
// returns where the old one is now. Elsewhere in two, between which a kill leaves only the old one,
// to which clear_leftovers gives its name back.
std::filesystem::path exchange(const std::filesystem::path& fresh,
                               const std::filesystem::path& target);

// Moves files that are no model's (is_model_file) from the folder `old` to the folder `target`,
// where they are missing. Of what others put in place of either, nothing is touched.
void move_user_files(const std::filesystem::path& old, const std::filesystem::path& target);

// At no moment does a part of `directory` stand under its name. A link in its place is an Error.
void remove_directory(const std::filesystem::path& directory);

// Ends in `directory` what killed processes of this user had begun, for targets whose name is
// `ours`: temporary folders go, except for what they hold of the user's. Links and what belongs to
// other users stay as they are. Does nothing where `directory` is none.
void clear_leftovers(const std::filesystem::path& directory,
                     const std::function<bool(const std::string& name)>& ours);

}  // namespace zeroth::model
