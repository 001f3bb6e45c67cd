#include "data/samples/dataset.h"

#include <sys/stat.h>

#include "tests/data/data_test_support.h"

namespace zeroth::data::sample_file_error_test {

TEST_CASE("what_is_no_data_file: files of samples are fine") {
  TempFolder directory;
  for (const char* name : {"t.txt", "t.bin", "t.jsonl", "t.json"}) {
    CHECK(sample_file_error(directory.write(name, "{\"text\": \"a\"}")).empty());
    CHECK(sample_file_error(directory.write(name, "")).empty());
  }
  CHECK(sample_file_error(directory.write("mark.bin", "\xff\xfe\x01\x02")).empty());
  CHECK(sample_file_error(directory.write("t.csv", "a,b")).empty());
  for (const char* name :
       {"text.jsonl.gz", "text.csv.zst", "plain.txt.gz", "text.parquet", "text.arrow"}) {
    CHECK(sample_file_error(fixture("containers") / name).empty());
  }
}

TEST_CASE("what_is_no_data_file: what lies there is named, with what to do") {
  TempFolder directory;
  check_contains(sample_file_error(directory.path()),
                 " is a folder, expected a file: name one in it");
  const auto fifo = directory.path() / "pipe.jsonl";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  check_contains(sample_file_error(fifo),
                 " is a FIFO, expected a file: each rank reads the samples");
  check_contains(sample_file_error("/dev/null"), " is a device, expected a file");
  for (const char* name : {"-", "/dev/stdin"}) {
    check_contains(sample_file_error(name), " is standard input: each rank reads the samples");
  }
}

TEST_CASE("what_is_no_data_file: a name that is no file's says what it looks like") {
  const std::pair<const char*, const char*> cases[] = {
      {"a.jsonl,b.jsonl", ": no such file; separate several paths by blanks"},
      {"https://example.org/t.jsonl", ": URLs are not supported: name a local file"},
      {"~/t.jsonl", ": no such file; ~ is not expanded"},
      {"tatsu-lab/alpaca", ": no such file; datasets of the Hugging Face Hub are not downloaded"}};
  for (const auto& [name, why] : cases) check_contains(sample_file_error(name), why);
  CHECK(sample_file_error("nowhere/t.jsonl") == ": no such file");
}

TEST_CASE("what_is_no_data_file: a file of another kind is known by its bytes or its name") {
  TempFolder directory;
  const std::tuple<const char*, std::string_view, const char*> cases[] = {
      {"z.jsonl", "\x1f\x8b\x08 and more", " is compressed (gzip): rename it to z.jsonl.gz"},
      {"z.json", "\x28\xb5\x2f\xfd", " is compressed (Zstandard): rename it to z.json.zst"},
      {"z.txt", "BZh91AY&SY", " is compressed (bzip2): unpack"},
      {"x.txt",
       std::string_view("\xfd"
                        "7zXZ\0",
                        6),
       " is compressed (xz): unpack"},
      {"z.bin", "PK\x03\x04", " is a ZIP archive"},
      {"p.jsonl", "PAR1", " is a Parquet table: rename it to p.parquet"},
      {"a.bin", "ARROW1", " is an Arrow table"},
      {"n.bin", "\x93NUMPY\x01",
       " is a NumPy array with a header: a .bin file holds only token ids"},
      {"s.bin", std::string_view("\x09\0\0\0\0\0\0\0{\"a", 11),
       " is a file of tensors (safetensors)"},
      {"i.bin", "MMIDIDX", " is an index of Megatron's token files: name the .bin file"},
      {"u.txt",
       "\xff\xfe"
       "a",
       " is UTF-16, expected UTF-8: iconv"},
      {"t.tsv", "a\tb", ": unknown file type '.tsv'; .jsonl, .json, .csv and .txt, each also"},
      {"t.jsonl.gz", "not packed at all", " is not gzip: it begins with 6e 6f 74 20 70 61 63 6b"},
      {"t.gz", "\x1f\x8b\x08", ": unknown file type '.gz'"},
      {"t.CSV", "a,b", ": the name must end in .csv, in lower case"},
      {"t.ndjson", "{}", "rename it to .jsonl if it has one object per line"},
      {"t.JSONL", "{}", ": the name must end in .jsonl, in lower case"},
      {"plain", "{}", ": unknown file type ''"}};
  for (const auto& [name, bytes, why] : cases) {
    check_contains(sample_file_error(directory.write(name, bytes)), why);
  }
  // A text may begin so.
  CHECK(sample_file_error(directory.write("t.txt", "BZh is no word")).empty());
}

}  // namespace zeroth::data::sample_file_error_test
