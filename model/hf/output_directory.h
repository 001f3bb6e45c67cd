// An OutputDirectory appears complete or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/files/output_lock.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

// A PreviousModel is the model that a commit() replaced. It stays on disk, beside the new one, as
// long as this object lives. cleanup_leftovers() removes what a killed process leaves of it.
class PreviousModel {
 public:
  PreviousModel(std::filesystem::path directory, std::filesystem::path target)
      : directory_(std::move(directory)), target_(std::move(target)) {}
  ~PreviousModel();
  PreviousModel(const PreviousModel&) = delete;
  PreviousModel& operator=(const PreviousModel&) = delete;

  // Puts the previous model back, together with the other files that are at the target by now, and
  // returns the path at which the new model remains. Must be called once. On failure throws an
  // Error that says where the model that is not at the target can be found.
  std::filesystem::path restore();

 private:
  std::filesystem::path directory_, target_;
  bool kept_ = false;
};

// An OutputDirectory collects files in a temporary directory beside `target`; commit() puts it in
// target's place. Without commit() the temporary directory is removed. A partial model never exists
// at `target`: a killed process leaves either the old one or the new one there. Errors name the
// path and the system's reason.
class OutputDirectory {
 public:
  // Throws an Error when `target` is not an empty directory, unless it may be overwritten, and when
  // it cannot be created, so that a user learns it before training. Tries to create a directory in
  // the nearest existing one, and leaves no trace.
  static void check(const std::filesystem::path& target, bool overwrite);
  // Removes what a killed process left beside `target`. Must be called before check().
  static void cleanup_leftovers(const std::filesystem::path& target);

  // Accepts a target that exists; commit() decides about it.
  OutputDirectory(const std::filesystem::path& target, bool overwrite);

  // Returns the directory to write to.
  const std::filesystem::path& path() const { return temporary_->path(); }

  // Blocks until everything is on disk. Replaces a previous model in `target` with all its files
  // (is_model_file), if it may be overwritten; other files (logs, notes) stay. Throws if the model
  // cannot be put in place, because another process put one there meanwhile or the system refuses;
  // the new model is then kept beside it. Calls `guard` once everything is on disk; if it throws,
  // the new model is removed. Returns the previous model, or null if there was none.
  std::unique_ptr<PreviousModel> commit(const OutputGuard& guard = {});

 private:
  std::unique_ptr<PreviousModel> install();

  std::filesystem::path target_;
  std::optional<TemporaryDirectory> temporary_;
  bool overwrite_;
  bool installed_ = false;  // the new model is at target_
};

}  // namespace zeroth::model
