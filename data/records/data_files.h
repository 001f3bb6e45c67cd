// The files that a path of --data names, and what each of them holds.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::data {

enum class DataFormat { kUnknown, kText, kTokens, kJsonLines, kJson, kCsv, kParquet, kArrow };
enum class Compression { kNone, kGzip, kZstd };

struct DataFileType {
  DataFormat format = DataFormat::kUnknown;
  Compression compression = Compression::kNone;  // of kText, kJsonLines, kJson and kCsv only

  bool operator==(const DataFileType&) const = default;
  bool has_records() const { return format >= DataFormat::kJsonLines; }
};

// Returns the type by the name, "x.jsonl.gz" for example. If the name tells nothing, a table is
// recognized by its first bytes. The file may be missing.
DataFileType data_file_type(const std::filesystem::path& path);

// Returns why the first bytes of a file are not those of the type that its name tells, and what to
// do: " is not gzip: ...", to follow the path. Empty if they are.
std::string mislabel_error(const std::filesystem::path& path);

// Returns the files of samples that `path` names, sorted by the bytes of their names: one path,
// which may be missing; a folder, with all of its files of samples, or those of its subfolders if
// it has none itself; or a pattern of *, ? and [...]. A path that exists is no pattern. Hidden
// files, the metadata of datasets and links that leave the folder are left out. Throws an Error if
// there is no such file, and for a folder with files of several types.
std::vector<std::filesystem::path> expand_data_path(const std::string& path);

// DataSource is a value of --data.
struct DataSource {
  std::string path = {};              // for expand_data_path()
  std::optional<double> weight = {};  // positive and finite
  // An entry of LLaMA-Factory's dataset_info.json, which names the path; otherwise empty.
  std::filesystem::path dataset_info = {};
  std::string dataset_name = {};
};

// Returns whether a value of --data may name records, by its text alone.
bool may_have_records(const std::string& value);

// Parses "PATH" or "PATH:WEIGHT"; PATH may be "DIR/dataset_info.json:NAME". The last colon
// separates a weight if a number follows, the path before it exists or is a pattern with files, and
// the full text is no such path. Throws an Error for a weight that is not positive and finite, and
// for an entry that is missing or not supported.
DataSource parse_data_source(const std::string& text);

}  // namespace zeroth::data
