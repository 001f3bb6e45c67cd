// The records of a .jsonl or .json file as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace zeroth::data {

// A record's ids lie one behind the other, in the order of the file.
struct EncodedRecord {
  int64_t begin = 0;        // in EncodedRecords::ids
  int32_t length = 0;       // positions; the record has length + 1 ids
  int32_t first_label = 0;  // positions before it are the prompt's
  int64_t line = 0;         // of the file, from 1
};

struct EncodedRecords {
  std::vector<int32_t> ids;
  std::vector<EncodedRecord> records;  // empty where the texts are joined: then none is cut
  int32_t end_of_text = 0;
  DatasetStats stats;
};

// Reads and encodes the whole file: prefix + text + end of text, or prefix + prompt + separator +
// completion + end of text. What is beyond seq_len + 1 ids is cut, but for texts with
// LongText::kChunk. Throws Error naming file, line and reason for a record that is no sample, and
// if no sample is left.
EncodedRecords read_records(const DatasetOptions& options);

}  // namespace zeroth::data
