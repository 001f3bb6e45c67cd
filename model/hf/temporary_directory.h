// A TemporaryDirectory holds an output until it gets its final name. This file also cleans up what
// a killed process leaves of one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/machine/file_descriptor.h"

namespace zeroth::model {

// Calls `action` and turns an exception of std::filesystem into an Error that names the path.
template <typename Action>
auto with_path_errors(Action action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error("{}", describe_exception(error));
  }
}

// A TemporaryDirectory is created beside `target`, so that a rename stays within one file system:
// "out.zeroth-tmp-Ab3dEf". It is locked while this object lives; an unlocked one was left behind by
// a killed process. `target` contains no symbolic links.
class TemporaryDirectory {
 public:
  // Creates the parent directories too. The directory gets the group and mode of `target`, or, if
  // there is none, those that the umask gives a new directory. Errors name the path and the
  // system's reason.
  explicit TemporaryDirectory(const std::filesystem::path& target);
  // Removes the directory at path(), unless it is kept.
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }
  // Keeps the directory under another name, which it returns.
  std::filesystem::path move_aside();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  FileDescriptor lock_;
  bool kept_ = false;
};

// Renames `directory`, created here for `target`, to a name that cleanup_leftovers() ignores:
// "out.new-Ab3dEf". Returns that name, or `directory` if the system refuses.
std::filesystem::path move_aside(const std::filesystem::path& directory,
                                 const std::filesystem::path& target);

// OutOfSpace reports a write that failed because the disk or a quota is full. The same write can
// succeed later, once there is space.
class OutOfSpace : public Error {
 public:
  using Error::Error;
};

// Throws an Error for a write into `directory` that failed, OutOfSpace if space was missing:
// `what`, the system's reason and, if the disk may be the cause, the free space: "No space left on
// device; 4096 bytes are free there".
[[noreturn]] void throw_write_error(const std::string& what, int error,
                                    const std::filesystem::path& directory);

// Throws such an Error for `file`, whose name begins the text, with the reason from errno.
[[noreturn]] void throw_write_error(const std::filesystem::path& file,
                                    std::string_view what = " cannot be written");

// Writes a small file. Throws like throw_write_error().
void write_file(const std::filesystem::path& path, std::string_view text);

// Puts `fresh` in the place of the directory `target` in one step, if the file system can, and
// returns the path of the old one. Otherwise uses two steps; a process killed between them leaves
// only the old directory, which cleanup_leftovers() renames back.
std::filesystem::path exchange(const std::filesystem::path& fresh,
                               const std::filesystem::path& target);

// Renames `from` to `to`. Throws an Error that names both.
void move_to(const std::filesystem::path& from, const std::filesystem::path& to);

// Moves files that belong to no model (is_model_file) from the directory `old` to the directory
// `target`, if they are missing there. Touches nothing that other processes put in the place of
// either.
void move_user_files(const std::filesystem::path& old, const std::filesystem::path& target);

// Removes `directory`. A partial one never exists under its name. Throws an Error if a symbolic
// link is in its place.
void remove_directory(const std::filesystem::path& directory);

// Finishes in `directory` what killed processes of this user had begun, for targets whose name
// satisfies `ours`: removes temporary directories, except for the user's own files in them.
// Symbolic links and files of other users are not touched. Does nothing if `directory` is not a
// directory.
void cleanup_leftovers(const std::filesystem::path& directory,
                       const std::function<bool(const std::string& name)>& ours);

}  // namespace zeroth::model
