// What an exception says to a user: never a text of the standard library's own.
#pragma once

#include <exception>
#include <string>

namespace zeroth {

// Of an Error or InternalError what it says; of a file system's or the system's failure the path
// and the system's reason; of anything else a quotation, as of an unexpected failure.
std::string describe_exception(const std::exception& error);

}  // namespace zeroth
