// Rows of .parquet and .arrow files. Apache Arrow, which reads them, is optional and large: it is
// linked by libzeroth_arrow.so only, which a program loads when it reads such a file.
#pragma once

#include <filesystem>
#include <optional>

#include "data/records/data_files.h"
#include "data/records/record_source.h"

namespace zeroth::data {

// Returns the path of libzeroth_arrow.so, if there is one.
std::optional<std::filesystem::path> arrow_library();

// Calls `on_record` for the rows of a table, batch by batch. Throws an Error that names the file
// and Arrow's reason if it is damaged, one that names the column for a type that JSON does not
// have, and one that says what to do if there is no Arrow.
void for_each_table_row(const SourceOptions& options, DataFormat format, const OnRecord& on_record);

// The function that the library exports. The build adds a hash of this interface to its name, so
// that a program does not call the library of another build.
using ReadTable = void (*)(const SourceOptions& options, DataFormat format,
                           const OnRecord& on_record);

}  // namespace zeroth::data
