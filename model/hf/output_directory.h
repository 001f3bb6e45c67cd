// A folder that appears whole or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/output_guard.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

// The model that a commit() replaced: on the disk, beside the new one, for as long as this object
// lives. What a kill leaves of it is cleared away.
class PreviousModel {
 public:
  PreviousModel(std::filesystem::path directory, std::filesystem::path target)
      : directory_(std::move(directory)), target_(std::move(target)) {}
  ~PreviousModel();
  PreviousModel(const PreviousModel&) = delete;
  PreviousModel& operator=(const PreviousModel&) = delete;

  // Puts the former model back, with the other files that stand at the target by now, and returns
  // where the new model stays. To be called once. Throws an Error that says where the one of the
  // two is that does not stand at the target.
  std::filesystem::path restore();

 private:
  std::filesystem::path directory_, target_;
  bool kept_ = false;
};

// Files go to a temporary folder beside `target`; commit() puts it in target's place. Without
// commit() the temporary folder is removed. At no moment does a part of a model stand at `target`:
// a kill leaves there the old one or the new one. Errors name the path and the system's reason.
class OutputDirectory {
 public:
  // Throws an Error when `target` is not an empty folder, unless it may be overwritten, and when it
  // cannot be made: so that nobody learns it after training. Tries that in the nearest folder there
  // is, and leaves no trace.
  static void check(const std::filesystem::path& target, bool overwrite);
  // Removes what a killed process left beside `target`. To be called before check().
  static void clear_leftovers(const std::filesystem::path& target);

  // What becomes of a target that exists, commit() decides.
  OutputDirectory(const std::filesystem::path& target, bool overwrite);

  // Where to write.
  const std::filesystem::path& path() const { return temporary_->path(); }

  // Blocks until all is on the disk. A former model in `target` is replaced with all its files
  // (is_model_file), if it may be overwritten; other files (logs, notes) stay. What cannot be put
  // in place, because somebody put a model there meanwhile or the system refuses, throws; then the
  // new model is kept beside it. `guard` is asked once all is on the disk, and where it throws
  // nothing is left of the new one. Returns the former model; null where there was none.
  std::unique_ptr<PreviousModel> commit(const OutputGuard& guard = {});

 private:
  std::unique_ptr<PreviousModel> install();

  std::filesystem::path target_;
  std::optional<TemporaryDirectory> temporary_;
  bool overwrite_;
  bool installed_ = false;  // the new model stands at target_
};

}  // namespace zeroth::model
