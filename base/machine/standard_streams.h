// Standard input, output and error, which may be closed, full, or without a reader. A run continues
// without them; a command whose purpose is its output fails.
#pragma once

#include <optional>
#include <string_view>

namespace zeroth {

// Opens closed descriptors among 0 to 2 on /dev/null, so that no other file gets these numbers.
// Makes writes without a reader, or beyond `ulimit -f`, fail with EPIPE or EFBIG instead of killing
// the process by SIGPIPE or SIGXFSZ. main must call it first.
void open_standard_streams();

// Writes the whole text to the descriptor and blocks while a pipe or terminal is full. Returns
// false and sets errno on failure.
bool write_all(int fd, std::string_view text);

// Writes the output of a command to standard output. Kills the process by SIGPIPE if there is no
// reader, as other commands do. Throws an Error if the output cannot be written or was closed from
// the start.
void print_output(std::string_view text);

// Ends a command whose output failed with this errno, like print_output().
[[noreturn]] void throw_output_error(int error);

// Writes a final message to standard error and drops what cannot be written within two seconds. Is
// safe even if another thread holds the lock of a stream and waits for a reader.
void write_last_message(std::string_view text);

// Returns whether standard output was closed when open_standard_streams() was called.
bool stdout_was_closed();

// Returns the columns of the terminal `fd`, 80 if it does not report them. Returns nullopt if
// nothing can be redrawn: no terminal, or one without control codes. `term` is the value of TERM,
// or null if it is not set.
std::optional<int> terminal_columns(int fd, const char* term);

}  // namespace zeroth
