// The records of a data file, whatever holds them: lines, a JSON array, a table, compressed or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/records/byte_source.h"

namespace zeroth::data {

// RawRecord is one record as its file holds it, valid during the call.
struct RawRecord {
  std::string_view text;  // its JSON; empty if the file is a table
  // Of a table: an object of its columns, which the receiver may move from. Otherwise null.
  nlohmann::ordered_json* row = nullptr;
  // The line of the file, from 1, on which the record begins; of .parquet and .arrow, the row.
  int64_t line = 0;
};

// Returns whether to go on.
using OnRecord = std::function<bool(const RawRecord&)>;

struct SourceOptions {
  std::filesystem::path path;
  // Called before each record, with the bytes of the stored file that have been read, and all of
  // them. May be null.
  std::function<void(int64_t done, int64_t bytes)> on_read = {};
};

// Calls `on_record` for the records of a file whose DataFileType has some, in the order of the
// file. Returns the number of blank lines. Memory does not grow with the file, except for a
// compressed .json file, which is unpacked as a whole. Throws an Error that names the file, and
// line or offset, if the container is malformed; a record's reader checks that it is JSON.
int64_t for_each_record(const SourceOptions& options, const OnRecord& on_record);

// Calls `on_text` for the text of a file, compressed or not, in pieces that end anywhere, also
// within a character. It returns whether to go on.
void for_each_block(const std::filesystem::path& path,
                    const std::function<bool(std::string_view)>& on_text);

// The readers of single containers, for for_each_record().

// Maximum bytes of a line, of a row of a .csv file, and of a compressed .json file.
inline constexpr size_t kMaxLineRecordBytes = size_t{1} << 30;
inline constexpr size_t kMaxPackedJsonBytes = size_t{4} << 30;

// Calls `on_record` for each line that is not blank; returns the number of blank lines. A line ends
// with a newline, or at the end of the file; a byte order mark before the first line belongs to
// none.
int64_t for_each_line(ByteSource& source, const OnRecord& on_record,
                      size_t max_bytes = kMaxLineRecordBytes);

// Calls `on_record` for the elements of an array, [...] or {"data": [...], ...}, as written;
// otherwise for consecutive values, as on lines. Parses only as much as separating them needs.
// `on_passed` is called now and then with text that was passed and is not read again soon; it may
// be null. Throws an Error that names `path` and line if an array is malformed or does
// not end.
void for_each_element(std::string_view text, const std::string& path, const OnRecord& on_record,
                      const std::function<void(std::string_view)>& on_passed = {});

// Calls `on_record` for the rows of a .csv file (RFC 4180), whose first row names the columns; all
// values are strings. Returns the number of blank lines. Throws an Error that names the line for a
// row with more or fewer fields, a quote that is not closed or followed by text, a column without
// its own name, and text that is not UTF-8.
int64_t for_each_csv_row(ByteSource& source, const OnRecord& on_record,
                         size_t max_bytes = kMaxLineRecordBytes);

}  // namespace zeroth::data
