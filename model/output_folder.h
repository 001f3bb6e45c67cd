// A folder that appears whole or not at all.
#pragma once

#include <filesystem>

namespace zeroth::model {

// Files go to a temporary folder beside `target`; commit() puts it in target's place. Without
// commit() the temporary folder is removed. Errors name the path and the system's reason.
class OutputFolder {
 public:
  // Throws an Error when `target` exists and is not an empty folder, unless it may be overwritten.
  static void check(const std::filesystem::path& target, bool overwrite);

  OutputFolder(const std::filesystem::path& target, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }

  // Blocks until all is on the disk. A former model in `target` is replaced; its other files (logs,
  // notes) stay. When somebody put a model there meanwhile, that throws and the temporary folder is
  // kept.
  void commit();

 private:
  void keep_foreign_files(const std::filesystem::path& old) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool overwrite_;
  bool keep_ = false;
};

}  // namespace zeroth::model
