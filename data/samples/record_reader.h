// Reader of a data file's records as token ids.
#pragma once

#include <cstdint>
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

}  // namespace zeroth::data
