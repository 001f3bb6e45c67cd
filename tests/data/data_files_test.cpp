#include "data/records/data_files.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::data_files_test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// The files that `path` names, relative to the folder.
Names expand(const TempFolder& directory, const std::string& path) {
  Names names;
  for (const fs::path& file : expand_data_path((directory / path).string())) {
    names.push_back(file.lexically_relative(directory.path()).string());
  }
  return names;
}

void make(const TempFolder& directory, const Names& files) {
  for (const std::string& file : files) {
    fs::create_directories((directory / file).parent_path());
    directory.write(file, "");
  }
}

}  // namespace

TEST_CASE("A name tells the type of a file, and first bytes tell that of a table without one") {
  const std::pair<const char*, DataFileType> cases[] = {
      {"a.jsonl", {DataFormat::kJsonLines, Compression::kNone}},
      {"a.b.json.gz", {DataFormat::kJson, Compression::kGzip}},
      {"a.csv.zst", {DataFormat::kCsv, Compression::kZstd}},
      {"a.txt", {DataFormat::kText, Compression::kNone}},
      {"a.bin", {DataFormat::kTokens, Compression::kNone}},
      {"a.parquet", {DataFormat::kParquet, Compression::kNone}},
      {"a.arrow", {DataFormat::kArrow, Compression::kNone}},
      {"a.bin.gz", {DataFormat::kUnknown, Compression::kGzip}},
      {"a.parquet.zst", {DataFormat::kUnknown, Compression::kZstd}},
      {".jsonl", {DataFormat::kUnknown, Compression::kNone}},
      {"a", {DataFormat::kUnknown, Compression::kNone}}};
  for (const auto& [name, type] : cases) {
    INFO(name);
    CHECK(data_file_type(name) == type);
  }
  TempFolder directory;
  CHECK(data_file_type(directory.write("a", "PAR1...")).format == DataFormat::kParquet);
  CHECK(data_file_type(directory.write("a", "text")).format == DataFormat::kUnknown);
}

TEST_CASE("A file that its name mislabels says what it is") {
  TempFolder directory;
  const std::tuple<const char*, std::string_view, std::string> cases[] = {
      {"a.jsonl", "{}", ""},
      {"a.jsonl.gz", "\x1f\x8b\x08", ""},
      {"a.jsonl.zst", "\x28\xb5\x2f\xfd", ""},
      {"a.jsonl.zst", std::string_view("\x51\x2a\x4d\x18\0\0\0\0", 8), ""},
      {"a.jsonl.gz", "", " is not gzip: it is empty, expected 1f 8b 08"},
      {"a.jsonl.zst", "{}", " is not Zstandard: it begins with 7b 7d, expected 28 b5 2f fd"},
      {"a.jsonl.zst", "\x1f\x8b\x08", " is not Zstandard: it begins with 1f 8b 08"},
      {"a.parquet", "{}", " is not Parquet: it begins with 7b 7d, expected 50 41 52 31"},
      {"a.arrow", "PAR1", " is not Arrow: it begins with 50 41 52 31, expected 41 52 52 4f 57 31"},
      {"a.jsonl", "\x1f\x8b\x08", " is compressed (gzip): rename it to a.jsonl.gz"},
      {"a.txt", "\x28\xb5\x2f\xfd", " is compressed (Zstandard): rename it to a.txt.zst"},
      {"a.bin", "\x1f\x8b\x08", " is compressed (gzip): unpack it first"},
      {"a.csv", "PAR1", " is a Parquet table: rename it to a.parquet"},
      {"a.bin", "\xff\xff\xff\xff", " is an Arrow stream: rename it to a.arrow"}};
  for (const auto& [name, bytes, error] : cases) {
    INFO(name);
    const std::string found = mislabel_error(directory.write(name, bytes));
    CHECK(found.substr(0, error.size()) == error);
    CHECK(found.empty() == error.empty());
  }
}

TEST_CASE("One path is that path, also if it is missing or looks like a pattern") {
  TempFolder directory;
  make(directory, {"a.jsonl", "b[1].jsonl", "b1.jsonl", "*.jsonl"});
  CHECK(expand(directory, "a.jsonl") == Names{"a.jsonl"});
  CHECK(expand(directory, "b[1].jsonl") == Names{"b[1].jsonl"});
  CHECK(expand(directory, "*.jsonl") == Names{"*.jsonl"});
  CHECK(expand(directory, "missing.jsonl") == Names{"missing.jsonl"});
  CHECK(expand_data_path("-") == std::vector<fs::path>{"-"});
}

TEST_CASE("A pattern names files in the order of their bytes") {
  TempFolder directory;
  make(directory, {"b2.jsonl", "B1.jsonl", "b10.jsonl", "c/x.jsonl", ".b3.jsonl", "b.txt"});
  CHECK(expand(directory, "*.jsonl") == Names{"B1.jsonl", "b10.jsonl", "b2.jsonl"});
  CHECK(expand(directory, "b?.jsonl") == Names{"b2.jsonl"});
  CHECK(expand(directory, "[a-c]/*") == Names{"c/x.jsonl"});
  CHECK(expand(directory, "[bc]*") == Names{"b.txt", "b10.jsonl", "b2.jsonl"});  // no folder
  check_contains(error_of([&] { expand(directory, "x*"); }),
                 "x*: no such file, and no file matches it as a pattern of *, ? and [...]");
}

TEST_CASE("A folder names its files of samples, or those of its subfolders") {
  TempFolder directory;
  make(directory, {"d/b.jsonl", "d/a.jsonl", "d/README.md", "d/dataset_info.json", "d/.c.jsonl",
                   "d/sub/x.jsonl", "e/sub/y.txt", "e/other/x.txt", "e/.git/z.txt",
                   "save/data-0.arrow", "save/state.json"});
  CHECK(expand(directory, "d") == Names{"d/a.jsonl", "d/b.jsonl"});
  CHECK(expand(directory, "d/") == Names{"d/a.jsonl", "d/b.jsonl"});
  CHECK(expand(directory, "e") == Names{"e/other/x.txt", "e/sub/y.txt"});
  CHECK(expand(directory, "save") == Names{"save/data-0.arrow"});
}

TEST_CASE("A folder without files of samples, or with several types, is an Error") {
  TempFolder directory;
  make(directory,
       {"none/README.md", "two/a.jsonl", "two/b.parquet", "packed/a.jsonl", "packed/a.jsonl.gz"});
  check_contains(error_of([&] { expand(directory, "none"); }),
                 "none has no file of samples: looked for .jsonl, .json, .csv, .txt");
  check_contains(error_of([&] { expand(directory, "two"); }),
                 "two has files of several types, a.jsonl and b.parquet: name those to train on");
  check_contains(error_of([&] { expand(directory, "packed"); }), "a.jsonl and a.jsonl.gz");
}

TEST_CASE("Links that leave a folder are left out, and others are followed") {
  TempFolder directory;
  make(directory, {"outside.jsonl", "d/a.jsonl", "d/sub/b.jsonl", "blobs/5f", "links/README"});
  fs::create_symlink("../outside.jsonl", directory / "d/out.jsonl");
  fs::create_symlink("a.jsonl", directory / "d/in.jsonl");
  fs::create_symlink("nowhere.jsonl", directory / "d/broken.jsonl");
  fs::create_symlink("..", directory / "links/up");
  fs::create_symlink("../blobs/5f", directory / "links/train.jsonl");
  CHECK(expand(directory, "d") == Names{"d/a.jsonl", "d/in.jsonl"});
  check_contains(error_of([&] { expand(directory, "links"); }),
                 "1 link that leaves it is left out: a pattern such as ");
  CHECK(expand(directory, "links/*.jsonl") == Names{"links/train.jsonl"});
}

TEST_CASE("A weight follows the last colon of a path that exists") {
  TempFolder directory;
  make(directory, {"a.jsonl", "with: colon.jsonl", "b.jsonl:0.3", "d/c.jsonl"});
  const auto parse = [&](const std::string& text) {
    const DataSource source = parse_data_source((directory / text).string());
    return std::pair(fs::path(source.path).lexically_relative(directory.path()).string(),
                     source.weight);
  };
  using Source = std::pair<std::string, std::optional<double>>;
  CHECK(parse("a.jsonl") == Source("a.jsonl", std::nullopt));
  CHECK(parse("a.jsonl:0.3") == Source("a.jsonl", 0.3));
  CHECK(parse("a.jsonl:2e1") == Source("a.jsonl", 20));
  CHECK(parse("with: colon.jsonl") == Source("with: colon.jsonl", std::nullopt));
  CHECK(parse("with: colon.jsonl:3") == Source("with: colon.jsonl", 3));
  CHECK(parse("b.jsonl:0.3") == Source("b.jsonl:0.3", std::nullopt));
  CHECK(parse("b.jsonl:0.3:0.5") == Source("b.jsonl:0.3", 0.5));
  CHECK(parse("d:1") == Source("d", 1));
  CHECK(parse("*.jsonl:1") == Source("*.jsonl", 1));
  CHECK(parse("missing.jsonl:0.3") == Source("missing.jsonl:0.3", std::nullopt));
  CHECK(parse("a.jsonl:x") == Source("a.jsonl:x", std::nullopt));
  CHECK(parse("a.jsonl:") == Source("a.jsonl:", std::nullopt));
  for (const char* const weight : {"0", "-1", "nan", "inf", "1e999", "-0.0"}) {
    check_contains(error_of([&] { parse(std::string("a.jsonl:") + weight); }),
                   fmt::format("a.jsonl:{0}: the weight '{0}' is not a positive finite", weight));
  }
}

}  // namespace zeroth::data::data_files_test
