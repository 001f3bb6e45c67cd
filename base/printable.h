// Text from files, folders and peers, made fit for a terminal, a log or a page.
#pragma once

#include <string>
#include <string_view>

namespace zeroth {

// Control characters (C0, DEL, C1), marks that reorder text and line separators as JSON escapes
// ("\n", "\u001b"), bytes that are not UTF-8 as "\xff"; all else stays. Printable text comes back
// as it is, so that it may pass twice.
std::string printable(std::string_view text);

// The same for a message of several lines: a line break stays where the next line is indented by
// two spaces or more, as ours are. No text within a message can begin a line of its own.
std::string printable_message(std::string_view text);

// printable, and of a text beyond `max_bytes` bytes only its beginning and its size.
std::string shortened(std::string_view text, size_t max_bytes = 80);

// What a library says of its own failure, as a quotation behind words of ours: its first line,
// shortened, in quotation marks.
std::string quotation(std::string_view text);

}  // namespace zeroth
