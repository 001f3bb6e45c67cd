// Messages for exceptions. A user never sees the standard library's own text.
#pragma once

#include <exception>
#include <string>

namespace zeroth {

// Returns the message of an Error or InternalError, and the path and the system's reason of a
// failure of a file system or the system. Quotes the text of any other exception as that of an
// unexpected failure.
std::string describe_exception(const std::exception& error);

}  // namespace zeroth
