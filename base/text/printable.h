// Conversion of text from files, directories and peers for a terminal, a log or a page.
#pragma once

#include <string>
#include <string_view>

namespace zeroth {

// Returns `text` with control characters (C0, DEL, C1), bidirectional marks and line separators as
// JSON escapes ("\n", "\u001b"), and bytes that are not UTF-8 as "\xff". All else is unchanged.
// Printable text is returned unchanged, so that it can be converted twice.
std::string printable(std::string_view text);

// Returns a message of several lines, printable. A line break is kept if two spaces or more indent
// the next line, as in messages of this program. Text inside a message thus cannot begin a line of
// its own.
std::string printable_message(std::string_view text);

// Returns the printable text; beyond `max_bytes` bytes only its beginning and its size.
std::string shortened(std::string_view text, size_t max_bytes = 80);

// Returns the first line of a library's error text, shortened and in quotation marks, for use
// inside a message.
std::string quotation(std::string_view text);

}  // namespace zeroth
