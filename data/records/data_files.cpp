#include "data/records/data_files.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "data/records/record_format.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;
using namespace std::literals;

struct Extension {
  std::string_view text;
  DataFormat format;
};
constexpr Extension kExtensions[] = {
    {".txt", DataFormat::kText},        {".bin", DataFormat::kTokens},
    {".jsonl", DataFormat::kJsonLines}, {".json", DataFormat::kJson},
    {".csv", DataFormat::kCsv},         {".parquet", DataFormat::kParquet},
    {".arrow", DataFormat::kArrow}};

// Container is a type that is recognized by the first bytes of a file.
struct Container {
  std::string_view bytes;
  DataFileType type;  // one part of it
  std::string_view name;
  std::string_view description;
  std::string_view extension;
};
constexpr DataFileType kGzip = {DataFormat::kUnknown, Compression::kGzip};
constexpr DataFileType kZstd = {DataFormat::kUnknown, Compression::kZstd};
constexpr DataFileType kParquet = {DataFormat::kParquet, Compression::kNone};
constexpr DataFileType kArrow = {DataFormat::kArrow, Compression::kNone};
constexpr Container kContainers[] = {
    {"\x1f\x8b\x08"sv, kGzip, "gzip", "compressed (gzip)", ".gz"},
    {"\x28\xb5\x2f\xfd"sv, kZstd, "Zstandard", "compressed (Zstandard)", ".zst"},
    {"PAR1"sv, kParquet, "Parquet", "a Parquet table", ".parquet"},
    {"ARROW1"sv, kArrow, "Arrow", "an Arrow table", ".arrow"},
    {"\xff\xff\xff\xff"sv, kArrow, "Arrow", "an Arrow stream", ".arrow"},
};
// A frame of Zstandard that readers skip begins so after its first byte.
constexpr std::string_view kSkippable = "\x2a\x4d\x18";

// Metadata that Hugging Face's datasets and LLaMA-Factory keep beside the data.
constexpr std::string_view kMetadata[] = {"dataset_info.json", "dataset_infos.json",
                                          "dataset_dict.json", "state.json"};
constexpr std::string_view kLookedFor =
    ".jsonl, .json, .csv, .txt (each also .gz or .zst), .parquet, .arrow and .bin";

// Returns nothing for a file that is empty or cannot be read.
std::string first_bytes(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string bytes(8, '\0');
  const RegularFile file(path);
  const ssize_t count = ::pread(file.descriptor(), bytes.data(), bytes.size(), 0);
  bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return bytes;
}

const Container* find_container(std::string_view bytes) {
  for (const Container& container : kContainers) {
    if (bytes.starts_with(container.bytes)) return &container;
  }
  const bool skippable = bytes.size() > 4 && (bytes[0] & 0xf0) == 0x50;
  return skippable && bytes.substr(1).starts_with(kSkippable) ? &kContainers[1] : nullptr;
}

DataFileType type_of_name(const fs::path& path) {
  DataFileType type;
  fs::path name = path.filename();
  const std::string last = name.extension().string();
  if (last == ".gz") type.compression = Compression::kGzip;
  if (last == ".zst") type.compression = Compression::kZstd;
  const bool packed = type.compression != Compression::kNone;
  if (packed) name = name.stem();
  const std::string extension = name.extension().string();
  for (const Extension& known : kExtensions) {
    if (extension == known.text) type.format = known.format;
  }
  const bool is_text = type.format == DataFormat::kText || type.format == DataFormat::kJsonLines ||
                       type.format == DataFormat::kJson || type.format == DataFormat::kCsv;
  if (packed && !is_text) type.format = DataFormat::kUnknown;
  return type;
}

// Returns whether `container` is what the type says on the outside.
bool is_container_of(const Container& container, const DataFileType& type) {
  return type.compression != Compression::kNone ? container.type.compression == type.compression
                                                : container.type == type;
}

std::string spaced_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += (text.empty() ? "" : " ") + to_hex({&byte, 1});
  return text;
}

bool exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {};
  struct Matches {
    ~Matches() { ::globfree(&found); }
    glob_t found{};
  } matches;
  if (::glob(pattern.c_str(), GLOB_NOSORT | GLOB_NOESCAPE, nullptr, &matches.found) != 0) return {};
  std::vector<fs::path> files;
  for (size_t i = 0; i < matches.found.gl_pathc; ++i) {
    std::error_code error;
    const fs::path path = matches.found.gl_pathv[i];
    if (!fs::is_directory(path, error)) files.push_back(path);
  }
  return files;
}

// DirectorySearch collects the files of samples below a folder.
class DirectorySearch {
 public:
  explicit DirectorySearch(const fs::path& directory)
      : directory_(directory), real_directory_(fs::canonical(directory)) {}

  std::vector<fs::path> run() {
    visit(directory_, 0);
    if (files_.empty()) {
      throw Error("{} has no file of samples: looked for {}, in it and its subfolders{}",
                  directory_.string(), kLookedFor, describe_links());
    }
    std::sort(files_.begin(), files_.end(), [](const fs::path& left, const fs::path& right) {
      return left.native() < right.native();
    });
    for (const fs::path& file : files_) {
      if (type_of_name(file) == type_of_name(files_.front())) continue;
      throw Error("{} has files of several types, {} and {}: name those to train on with a pattern",
                  directory_.string(), files_.front().lexically_relative(directory_).string(),
                  file.lexically_relative(directory_).string());
    }
    return std::move(files_);
  }

 private:
  std::string describe_links() const {
    if (links_ == 0) return "";
    return fmt::format("; {} left out: a pattern such as {} names {}",
                       links_ == 1 ? "1 link that leaves it is"
                                   : fmt::format("{} links that leave it are", links_),
                       (directory_ / "*").string(), links_ == 1 ? "it" : "them");
  }

  void visit(const fs::path& directory, int depth) {
    constexpr int kMaxDepth = 32;
    if (depth > kMaxDepth) return;
    std::vector<fs::path> subfolders;
    const size_t before = files_.size();
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.')) continue;
      if (entry.is_directory() && !entry.is_symlink()) {
        subfolders.push_back(entry.path());
      } else if (is_data_file(entry, name)) {
        files_.push_back(entry.path());
      }
    }
    if (files_.size() > before) return;
    for (const fs::path& subfolder : subfolders) visit(subfolder, depth + 1);
  }

  bool is_data_file(const fs::directory_entry& entry, const std::string& name) {
    std::error_code error;
    const bool metadata =
        std::find(std::begin(kMetadata), std::end(kMetadata), name) != std::end(kMetadata);
    if (metadata || type_of_name(name).format == DataFormat::kUnknown) return false;
    if (!entry.is_regular_file(error)) return false;
    const std::string inside = (real_directory_ / "").string();
    if (!entry.is_symlink() || fs::canonical(entry.path()).string().starts_with(inside))
      return true;
    ++links_;
    return false;
  }

  fs::path directory_, real_directory_;
  std::vector<fs::path> files_;
  int64_t links_ = 0;
};

}  // namespace

DataFileType data_file_type(const fs::path& path) {
  DataFileType type = type_of_name(path);
  if (type != DataFileType{}) return type;
  const Container* const content = find_container(first_bytes(path));
  return content != nullptr && content->type.format != DataFormat::kUnknown ? content->type : type;
}

std::string mislabel_error(const fs::path& path) {
  const DataFileType type = data_file_type(path);
  const std::string bytes = first_bytes(path);
  const Container* const content = find_container(bytes);
  if (content != nullptr && is_container_of(*content, type)) return "";
  for (const Container& expected : kContainers) {
    if (!is_container_of(expected, type)) continue;
    const std::string found =
        bytes.empty() ? "it is empty" : fmt::format("it begins with {}", spaced_hex(bytes));
    return fmt::format(" is not {}: {}, expected {}", expected.name, found,
                       spaced_hex(expected.bytes));
  }
  if (content == nullptr) return "";
  const std::string name = path.filename().string();
  if (content->type.compression == Compression::kNone) {
    return fmt::format(" is {}: rename it to {}{}", content->description,
                       path.stem().filename().string(), content->extension);
  }
  const bool unpack = type.format == DataFormat::kTokens || type.format == DataFormat::kUnknown;
  return fmt::format(
      " is {}: {}", content->description,
      unpack ? "unpack it first" : fmt::format("rename it to {}{}", name, content->extension));
}

std::vector<fs::path> expand_data_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    try {
      return DirectorySearch(path).run();
    } catch (const fs::filesystem_error& failure) {
      throw Error("cannot read the folder {}: {}", path, failure.code().message());
    }
  }
  if (exists(path) || path.find_first_of("*?[") == std::string::npos) return {path};
  std::vector<fs::path> files = files_of_pattern(path);
  if (files.empty()) {
    throw Error("{}: no such file, and no file matches it as a pattern of *, ? and [...]", path);
  }
  std::sort(files.begin(), files.end(), [](const fs::path& left, const fs::path& right) {
    return left.native() < right.native();
  });
  return files;
}

namespace {

// Returns the number behind the last colon of a value; nullopt if it is none. Throws an Error if it
// is no weight.
std::optional<double> parse_weight(const std::string& text, const std::string& number) {
  const char* const end = number.data() + number.size();
  double weight = 0;
  const auto [rest, failure] = std::from_chars(number.data(), end, weight);
  if (failure == std::errc::invalid_argument || rest != end) return std::nullopt;
  if (failure == std::errc{} && std::isfinite(weight) && weight > 0) return weight;
  throw Error("{}: the weight '{}' is not a positive finite number", text, shortened(number));
}

// `name_begin`: where the entry's name begins, after "dataset_info.json:".
DataSource parse_dataset_entry(const std::string& text, size_t name_begin) {
  DataSource source;
  source.dataset_info = text.substr(0, name_begin - 1);
  source.dataset_name = text.substr(name_begin);
  if (const size_t colon = source.dataset_name.rfind(':'); colon != std::string::npos) {
    source.weight = parse_weight(text, source.dataset_name.substr(colon + 1));
    if (source.weight) source.dataset_name.resize(colon);
  }
  const DatasetInfo info = read_dataset_info(source.dataset_info, source.dataset_name);
  source.path = (source.dataset_info.parent_path() / info.file_name).string();
  return source;
}

}  // namespace

bool may_have_records(const std::string& value) {
  return !value.ends_with(".txt") && !value.ends_with(".bin");
}

DataSource parse_data_source(const std::string& text) {
  constexpr std::string_view kDatasetInfo = "dataset_info.json:";
  const size_t entry = text.rfind(kDatasetInfo);
  if (entry != std::string::npos && !exists(text))
    return parse_dataset_entry(text, entry + kDatasetInfo.size());
  DataSource whole;
  whole.path = text;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || exists(text) || !files_of_pattern(text).empty()) return whole;
  DataSource weighted;
  weighted.path = text.substr(0, colon);
  if (!exists(weighted.path) && files_of_pattern(weighted.path).empty()) return whole;
  weighted.weight = parse_weight(text, text.substr(colon + 1));
  return weighted.weight ? weighted : whole;
}

}  // namespace zeroth::data
