// Check of a user's path to a file of samples.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/files/regular_file.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "data/records/data_files.h"
#include "data/samples/dataset.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;
using namespace std::literals;

constexpr std::string_view kKnownExtensions =
    ".jsonl, .json, .csv and .txt, each also .gz or .zst, .parquet, .arrow and .bin are supported";

constexpr std::string_view kUnpack = "unpack it first";
constexpr std::string_view kConvert =
    "write its rows as lines of JSON: python3 -c \"import datasets; datasets.load_dataset(KIND, "
    "data_files=FILE, split='train').to_json('train.jsonl')\"";
constexpr std::string_view kIds =
    "a .bin file holds only token ids: write them with ids.astype('uint16').tofile(FILE), "
    "or 'uint32' for a vocabulary above 65536";
constexpr std::string_view kModel = "--data takes samples, --model a model";

// Magic describes a format that is recognized by its first bytes, with any file name.
struct Magic {
  std::string_view bytes;
  std::string_view kind;
  std::string_view remedy;
  size_t at = 0;  // offset of the bytes in the file
};
constexpr Magic kMagics[] = {
    {"1AY&SY", "compressed (bzip2)", kUnpack, 4},
    {"\xfd\x37zXZ", "compressed (xz)", kUnpack},
    {"\x04\x22\x4d\x18", "compressed (LZ4)", kUnpack},
    {"7z\xbc\xaf\x27\x1c", "an archive (7-Zip)", kUnpack},
    {"Rar!", "an archive (RAR)", kUnpack},
    {"PK\x03\x04", "a ZIP archive (also .npz, .xlsx, .pt)", kUnpack},
    {"Obj\x01", "an Avro table", kConvert},
    {"SQLite format 3", "an SQLite database", kConvert},
    {"\x89HDF", "an HDF5 file", kIds},
    {"\x93NUMPY", "a NumPy array with a header", kIds},
    {"\x80\x04\x95", "a Python pickle", kIds},
    {"MMIDIDX", "an index of Megatron's token files", "name the .bin file beside it"},
    {"TNTIDX", "an index of fairseq's token files", kIds},
    {"GGUF", "a model (GGUF)", kModel},
    {std::string_view("\0\0\0\0{\"", 6), "a file of tensors (safetensors)", kModel, 4},
    {"%PDF", "a PDF document", "write its text to a .txt file"},
};
// Byte order marks of UTF-16, checked in text files only: a file of token ids may begin with them.
constexpr std::string_view kUtf16[] = {"\xff\xfe"sv, "\xfe\xff"sv};
constexpr std::string_view kFromUtf16 =
    " is UTF-16, expected UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW converts it";

// KnownExtensions are those of formats that are recognized by their extension only.
struct KnownExtensions {
  std::array<std::string_view, 7> extensions;  // empty ones stand for none
  std::string_view remedy;
};
constexpr KnownExtensions kOtherExtensions[] = {
    {{".tsv", ".orc", ".xlsx"}, kConvert},
    {{".zip", ".bz2", ".xz", ".tar", ".tgz"}, kUnpack},
    {{".gz", ".zst"}, "unpack it first, or name it after what it holds, as train.jsonl.gz"},
    {{".npy", ".npz"}, kIds},
    {{".idx"}, "name the .bin file beside it"},
    {{".ndjson", ".jsonlines", ".jl"}, "rename it to .jsonl if it has one object per line"},
    {{".yaml", ".yml"}, "write one object per line to a .jsonl file"},
    {{".md", ".text"}, "copy it to a .txt file to train on it as one text"},
    {{".py"}, "name the samples themselves"},
    {{".gguf", ".safetensors"}, kModel},
};

bool is_standard_input(const std::string& name) {
  return name == "-" || name == "/dev/stdin" || name == "/dev/fd/0" || name == "/proc/self/fd/0";
}

std::string missing_file_error(const std::string& name) {
  if (name.find("://") != std::string::npos) {
    return ": URLs are not supported: name a local file";
  }
  if (name.find_first_of(", ") != std::string::npos) {
    return ": no such file; separate several paths by blanks: --data a.jsonl b.jsonl";
  }
  if (name.starts_with('~')) {
    return ": no such file; ~ is not expanded: write the home folder's path";
  }
  const bool word = fs::path(name).extension().empty() && !name.starts_with('/');
  return word ? ": no such file; datasets of the Hugging Face Hub are not downloaded: in Python, "
                "datasets.load_dataset(NAME, split='train').to_json('train.jsonl') saves one"
              : ": no such file";
}

const char* file_type_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) ? "a device" : "a block device";
}

std::string not_a_file_error(mode_t mode) {
  std::string text = fmt::format(" is {}, expected a file: ", file_type_name(mode));
  if (S_ISDIR(mode)) return text + "name one in it; " + std::string(kKnownExtensions);
  return text + "each rank reads the samples more than once: save them as a file";
}

std::string unknown_type_error(const fs::path& path) {
  const std::string extension = path.extension().string();
  std::string lower = extension;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  if (data_file_type(path).format != DataFormat::kUnknown) return "";
  for (const std::string_view known :
       {".txt", ".bin", ".jsonl", ".json", ".csv", ".parquet", ".arrow", ".gz", ".zst"}) {
    if (extension == known) continue;
    if (lower == known) return fmt::format(": the name must end in {}, in lower case", known);
  }
  std::string text =
      fmt::format(": unknown file type '{}'; {}", shortened(extension), kKnownExtensions);
  for (const auto& [extensions, remedy] : kOtherExtensions) {
    const bool known = std::find(extensions.begin(), extensions.end(), lower) != extensions.end();
    if (known && !lower.empty()) text += fmt::format("; {}", remedy);
  }
  return text;
}

}  // namespace

std::string sample_file_error(const fs::path& path) {
  const std::string name = path.string();
  if (is_standard_input(name)) {
    return " is standard input: each rank reads the samples more than once: save them as a file";
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? missing_file_error(name) : ": " + system_reason(errno);
  }
  if (!S_ISREG(status.st_mode)) return not_a_file_error(status.st_mode);
  if (std::string why = mislabel_error(path); !why.empty()) return why;
  std::array<char, 16> first{};
  const RegularFile file(path);
  const ssize_t count = ::pread(file.descriptor(), first.data(), first.size(), 0);
  const std::string_view bytes(first.data(), count < 0 ? 0 : static_cast<size_t>(count));
  for (const Magic& magic : kMagics) {
    const auto here = bytes.substr(std::min(magic.at, bytes.size()));
    if (here.starts_with(magic.bytes)) return fmt::format(" is {}: {}", magic.kind, magic.remedy);
  }
  const bool utf16 = std::any_of(std::begin(kUtf16), std::end(kUtf16),
                                 [&](std::string_view mark) { return bytes.starts_with(mark); });
  const bool ids = data_file_type(path).format == DataFormat::kTokens;
  if (utf16 && !ids) return std::string(kFromUtf16);
  return unknown_type_error(path);
}

}  // namespace zeroth::data
