// The records of a file of samples: one a line, or the elements of one JSON array.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace zeroth::data {

// A record's text, and the line of the file, from 1, on which it begins.
using OnRecord = std::function<void(std::string_view record, int64_t line)>;

// Each line of `file` that is not blank, and returns how many are. A line ends with a newline, or
// with the file; a byte order mark before the first one belongs to none.
int64_t for_each_line(std::string_view file, const OnRecord& on_record);

// The elements of an array, [...] or {"data": [...], ...}, as they stand there; else values one
// after the other, as on lines. Only as much is looked at as cuts them: whether a record is JSON,
// its reader finds out. Throws an Error that names `path` and line where an array does not go on or
// end.
void for_each_element(std::string_view file, const std::string& path, const OnRecord& on_record);

}  // namespace zeroth::data
