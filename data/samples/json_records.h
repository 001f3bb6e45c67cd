// Records of a file of samples: one per line, or the elements of one JSON array.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace zeroth::data {

// OnRecord is called with a record's text, and the line of the file, from 1, on which it begins.
using OnRecord = std::function<void(std::string_view record, int64_t line)>;

// Calls `on_record` for each line of `file` that is not blank; returns the number of blank lines. A
// line ends with a newline, or at the end of the file; a byte order mark before the first line
// belongs to none.
int64_t for_each_line(std::string_view file, const OnRecord& on_record);

// Calls `on_record` for the elements of an array, [...] or {"data": [...], ...}, as written;
// otherwise for consecutive values, as on lines. Parses only as much as separating them needs: the
// record's reader checks that it is JSON. Throws an Error that names `path` and line if an array is
// malformed or does not end.
void for_each_element(std::string_view file, const std::string& path, const OnRecord& on_record);

}  // namespace zeroth::data
