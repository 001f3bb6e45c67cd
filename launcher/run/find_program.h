// The file behind PROGRAM.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace zeroth::launcher {

// PROGRAM cannot be started; `status` is what a shell would exit with: 127 not found, 126 not
// executable.
class ProgramError : public Error {
 public:
  ProgramError(int status, const std::string& message) : Error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// A name with a slash is a path; any other is looked for in `zeroth_directory` (that of zeroth
// itself), then along `path`, a colon-separated list. Throws ProgramError that says where it
// looked.
std::filesystem::path find_program(const std::string& name,
                                   const std::filesystem::path& zeroth_directory,
                                   const std::string& path);

}  // namespace zeroth::launcher
