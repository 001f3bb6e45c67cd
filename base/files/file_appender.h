// FileAppender: appends to an open file in large pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace zeroth {

// WriteError reports that a file cannot be written, as on a full disk.
class WriteError : public Error {
 public:
  using Error::Error;
};

class FileAppender {
 public:
  // Does not own the descriptor. `name` is that of the file in messages.
  FileAppender(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  // Throw a WriteError with the name and the system's reason if the file cannot be written.
  void append(std::string_view bytes);
  void flush();  // after the last bytes; the destructor does not

  int64_t bytes() const { return bytes_; }  // appended so far

 private:
  int fd_;
  std::string name_;
  std::string pending_;
  int64_t bytes_ = 0;
};

}  // namespace zeroth
