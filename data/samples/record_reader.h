// Reader of a data file's records as token ids.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/dataset.h"
#include "data/samples/token_store.h"

namespace zeroth::data {

// Reads and encodes the full file, whatever the format of its records, and writes the ids of each.
// Throws an Error that names file, line and reason for a record that is not valid, unless those are
// skipped, and an Error if no record is left.
RecordFacts read_records(const DatasetOptions& options, TokenStoreWriter& writer);

// Returns how many records are read of a file whose texts are not chunked; nullopt: all.
std::optional<int64_t> record_limit(const DatasetOptions& options);

// Reads a .txt file, one text without special tokens, as one sequence, or as several if it is too
// long for one. Throws an Error that names the byte that is not UTF-8, or an id outside the
// vocabulary.
RecordFacts read_text_file(const DatasetOptions& options, TokenStoreWriter& writer);

// Reads a file of records or of a text by either.
RecordFacts read_tokens(const DatasetOptions& options, TokenStoreWriter& writer);

}  // namespace zeroth::data
