#include "data/samples/megatron_index.h"

#include <fcntl.h>

#include "tests/data/data_test_support.h"
#include "tests/data/megatron_header.h"

namespace zeroth::data::megatron_index_test {

namespace {

// One sequence of `length` ids from byte `begin` on.
std::string one(uint8_t kind, int32_t length, int64_t begin = 0) {
  std::string text = megatron_header(kind, 1);
  append_number(text, length);
  append_number(text, begin);
  return text + std::string(16, '\0');
}

}  // namespace

TEST_CASE("An index says how wide ids are") {
  TempFolder directory;
  const auto tokens = directory.path() / "t.bin";
  const auto read = [&](const std::string& index, int64_t bytes) {
    return MegatronIndex(directory.write("t.idx", index), tokens, bytes);
  };
  CHECK(read(one(8, 6), 12).type() == TokenType::kUint16);
  CHECK(read(one(4, 3), 12).type() == TokenType::kUint32);
  const MegatronIndex empty = read(megatron_header(4, 0), 0);
  CHECK(empty.type() == TokenType::kUint32);
  CHECK(empty.size() == 0);
}

TEST_CASE("An index of another file, of another kind or cut off is an Error") {
  TempFolder directory;
  const auto refusal = [&](const std::string& index) {
    const auto path = directory.write("t.idx", index);
    return error_of([&] { MegatronIndex(path, directory.path() / "t.bin", 12); });
  };
  check_contains(refusal("another kind of index"),
                 "t.idx is not Megatron's index of " + (directory.path() / "t.bin").string() +
                     ": rename or remove it to use t.bin without an index");
  check_contains(refusal(one(8, 5)), "that has 12 bytes, and the index says 10");
  check_contains(refusal(one(5, 1, 4)),
                 "t.idx says that the ids are int64; supported are uint16 and int32");
  check_contains(refusal(one(77, 6)), "t.idx: unknown dtype code 77");
  check_contains(refusal(one(8, 6).substr(0, 20)), "t.idx is truncated: 20 bytes");
  check_contains(refusal(megatron_header(8, 1)), "the index says an invalid size");
  check_contains(refusal(megatron_header(8, uint64_t{1} << 63)), "the index says an invalid size");
  check_contains(refusal(one(8, -6)), "the index says an invalid size");
  check_contains(refusal(one(8, 6, INT64_MAX)), "the index says an invalid size");
}

TEST_CASE("An index that was written says where each sequence is") {
  TempFolder directory;
  const auto path = directory.write("t.idx", "");
  const FileDescriptor file(::open(path.c_str(), O_WRONLY));
  write_megatron_index(file.get(), TokenType::kUint32, std::vector<int32_t>{4, 0, 2});
  const MegatronIndex index(path, "t.bin", 24);
  REQUIRE(index.size() == 3);
  CHECK(index.type() == TokenType::kUint32);
  CHECK(index.at(0).length == 4);
  CHECK(index.at(1).begin == 4);
  CHECK(index.at(1).length == 0);
  CHECK(index.at(2).begin == 4);
  CHECK(index.at(2).length == 2);
  // As Megatron's: header, lengths, first bytes, documents.
  CHECK(std::filesystem::file_size(path) == 34 + 3 * 12 + 4 * 8);
}

}  // namespace zeroth::data::megatron_index_test
