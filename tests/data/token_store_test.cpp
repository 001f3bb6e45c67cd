#include "data/samples/token_store.h"

#include <fcntl.h>

#include "tests/data/data_test_support.h"

namespace zeroth::data::token_store_test {
namespace {

FileDescriptor create(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
}

void write_store(const TempFolder& directory, TokenType type,
                 const std::vector<std::vector<int32_t>>& sequences) {
  TokenStoreWriter writer(type, "t",
                          {.ids = create(directory / "t.bin"),
                           .index = create(directory / "t.idx"),
                           .mask = create(directory / "t.mask"),
                           .lines = create(directory / "t.lines")});
  int64_t line = 10;
  for (const std::vector<int32_t>& ids : sequences) {
    std::vector<bool> trained;
    for (const int32_t id : ids) trained.push_back(id % 2 == 1);
    writer.add(ids, trained, line++);
  }
  writer.finish();
}

}  // namespace

TEST_CASE("A store has the sequences that were written, their trained ids and their lines") {
  const std::vector<std::vector<int32_t>> sequences = {
      {1, 2, 3, 4, 5}, {}, {7, 7, 7, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17}, {2}};
  for (const TokenType type : {TokenType::kUint16, TokenType::kUint32}) {
    TempFolder directory;
    write_store(directory, type, sequences);
    CHECK(std::filesystem::file_size(directory / "t.bin") == 19 * id_bytes(type));
    CHECK(std::filesystem::file_size(directory / "t.mask") == 3);
    const TokenStore store(token_store_paths(directory / "t.bin"));
    REQUIRE(store.num_sequences() == 4);
    CHECK(store.num_ids() == 19);
    for (int64_t i = 0; i < 4; ++i) {
      const auto [begin, length] = store.sequence(i);
      REQUIRE(length == std::ssize(sequences[i]));
      CHECK(store.line(i) == 10 + i);
      int64_t trained = 0;
      for (int64_t k = 0; k < length; ++k) {
        const int64_t id =
            std::visit([&](const auto& ids) { return int64_t{ids[begin + k]}; }, store.ids());
        CHECK(id == sequences[i][k]);
        CHECK(store.is_trained(begin + k) == (id % 2 == 1));
        trained += id % 2;
      }
      CHECK(store.count_trained(begin, begin + length) == trained);
    }
  }
}

TEST_CASE("Without a mask every id is trained, and without lines they are 0") {
  TempFolder directory;
  write_store(directory, TokenType::kUint16, {{2, 4}, {6}});
  std::filesystem::remove(directory / "t.mask");
  std::filesystem::remove(directory / "t.lines");
  const TokenStore store(token_store_paths(directory / "t.bin"));
  CHECK(store.is_trained(1));
  CHECK(store.count_trained(0, 3) == 3);
  CHECK(store.line(1) == 0);
}

TEST_CASE("A file of another size than its ids need is an Error") {
  TempFolder directory;
  write_store(directory, TokenType::kUint16, {{2, 4}, {6}});
  directory.write("t.mask", "ab");
  check_contains(error_of([&] { TokenStore(token_store_paths(directory / "t.bin")); }),
                 "t.mask has 2 bytes, but for " + (directory / "t.bin").string() + " it needs 1");
}

TEST_CASE("A full disk is a WriteError") {
  TempFolder directory;
  const auto full = [] { return FileDescriptor(::open("/dev/full", O_WRONLY)); };
  TokenStoreWriter writer(TokenType::kUint16, "t",
                          {.ids = full(), .index = full(), .mask = full(), .lines = full()});
  writer.add(std::vector<int32_t>{1}, {true}, 1);
  CHECK_THROWS_AS(writer.finish(), WriteError);
}

}  // namespace zeroth::data::token_store_test
