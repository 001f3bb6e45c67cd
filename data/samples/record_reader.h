// Reader of a .jsonl or .json file's records as token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/dataset.h"

namespace zeroth::data {

// EncodedRecord locates a record's ids, which follow each other in the order of the file.
struct EncodedRecord {
  int64_t begin = 0;   // in EncodedRecords::ids
  int32_t length = 0;  // positions; the record has length + 1 ids
  int64_t line = 0;    // of the file, from 1
};

struct EncodedRecords {
  std::vector<int32_t> ids;
  std::vector<bool> trained;           // of each id; empty if the texts are chunked
  std::vector<EncodedRecord> records;  // empty if the texts are chunked; none is truncated then
  int32_t end_of_text = 0;
  DatasetStats stats;
};

// Reads and encodes the full file, whatever the format of its records. Truncates records to seq_len
// + 1 ids, except texts with LongText::kChunk. Throws an Error that names file, line and reason for
// a record that is not a sample, and an Error if no sample is left.
EncodedRecords read_records(const DatasetOptions& options);

// The records of a file, one per line or the elements of one JSON array.

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
