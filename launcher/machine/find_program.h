// Finds the file of PROGRAM.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace zeroth::launcher {

// ProgramError reports that PROGRAM cannot be started; `status` is the exit code of a shell: 127
// not found, 126 not executable.
class ProgramError : public Error {
 public:
  ProgramError(int status, const std::string& message) : Error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

bool file_exists(const std::filesystem::path& file);

// Finds a program: a name with a slash is a path; any other is searched for in `zeroth_directory`
// (the directory of the zeroth executable), then along `path`, a colon-separated list. Throws a
// ProgramError that lists the searched places.
std::filesystem::path find_program(const std::string& name,
                                   const std::filesystem::path& zeroth_directory,
                                   const std::string& path);

}  // namespace zeroth::launcher
