// A folder that appears whole or not at all.
#pragma once

#include <filesystem>

namespace zeroth::model {

// Files go to a temporary folder beside `target`; commit() puts it in target's place. Without
// commit() the temporary folder is removed. Errors name the path and the system's reason.
class OutputFolder {
 public:
  // Throws an Error when `target` is not an empty folder, unless it may be overwritten, and when it
  // cannot be made: so that nobody learns it after training. Tries that in the nearest folder there
  // is, and leaves no trace.
  static void check(const std::filesystem::path& target, bool overwrite);

  OutputFolder(const std::filesystem::path& target, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }

  // Blocks until all is on the disk. A former model in `target` is replaced with all its files
  // (is_model_file); others (logs, notes) stay. What cannot be put in place, because somebody put a
  // model there meanwhile or the system refuses, throws; then the temporary folder is kept.
  void commit();

 private:
  void put_in_place();
  void keep_foreign_files(const std::filesystem::path& old) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool overwrite_;
  bool keep_ = false;
};

}  // namespace zeroth::model
