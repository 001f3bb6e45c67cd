// Standard input, output and error as a program may find them: closed, full, or with nobody who
// reads any more. A run goes on without them; a command whose output is its work fails.
#pragma once

#include <optional>
#include <string_view>

namespace zeroth {

// To be called first in main. Opens what is closed of the descriptors 0 to 2 on /dev/null, so that
// no file of ours becomes one of them. Writes that nobody reads, or beyond `ulimit -f`, fail from
// now on (EPIPE, EFBIG) instead of ending the process by SIGPIPE or SIGXFSZ.
void open_standard_streams();

// Writes all of it to the descriptor; waits where a pipe or terminal is full. False with errno
// where that fails.
bool write_all(int fd, std::string_view text);

// What a command was asked for, to standard output. Where nobody reads any more the process ends by
// SIGPIPE, as any other command. Throws an Error if it cannot be written, or the output was closed
// from the start.
void print_output(std::string_view text);

// [[noreturn]] The end of whoever's output was its work and failed with this errno, as above.
[[noreturn]] void throw_output_error(int error);

// Last words, to standard error: what that does not take within two seconds is dropped. Safe
// whatever other threads do, which may hold the lock of a stream and wait for a reader.
void write_last_message(std::string_view text);

// Whether standard output was closed when open_standard_streams() came.
bool stdout_was_closed();

// Columns of the terminal behind `fd`, 80 where it does not say. Empty where nothing can be
// redrawn: no terminal, or one that knows no control codes. `term` is the value of TERM, null where
// it is not set.
std::optional<int> terminal_columns(int fd, const char* term);

}  // namespace zeroth
