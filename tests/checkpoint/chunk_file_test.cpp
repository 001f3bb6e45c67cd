#include "checkpoint/chunk_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::chunk_file_test {
namespace {

std::vector<TensorChunk> some_pieces() {
  std::vector<TensorChunk> chunks = split("w", "master", {5, 7}, {10, 0, 25});
  chunks.push_back({"w", "exp_avg", "F32", {{5, 7}, {1, 2}, {3, 4}}, {3, 11}});
  chunks.push_back(TensorChunk::full("count", "step", "F32", {}));
  return chunks;
}

}  // namespace

TEST_CASE("a file of pieces is a safetensors file of entries of one dimension") {
  FaultyFileSystem file_system;
  const std::vector<TensorChunk> chunks = some_pieces();
  ChunkFile file(file_system, "f", chunks);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto values = values_of(chunks[i]);
    file.write(i, std::as_bytes(std::span(values)));
  }
  const StoredFile stored = file.finish("zeroth/f");
  const std::string& bytes = file_system.bytes_of("f");
  CHECK(stored.name == "zeroth/f");
  CHECK(stored.size == std::ssize(bytes));
  CHECK(stored.crc == crc32c(bytes));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  const auto header = parse_trusted_json(std::string_view(bytes).substr(8, length));
  CHECK(header.size() == chunks.size() + 1);
  CHECK(header["__metadata__"]["format"] == "zeroth pieces 1");
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto& entry = header[chunk_key(chunks[i])];
    CHECK(entry["dtype"] == "F32");
    CHECK(entry["shape"][0] == chunks[i].elements());
    const auto begin = entry["data_offsets"][0].get<int64_t>() + 8 + static_cast<int64_t>(length);
    CHECK(stored.chunks[i].chunk == chunks[i]);
    CHECK(stored.chunks[i].offset == begin);
    const auto values = values_of(chunks[i]);
    const std::string expected(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    CHECK(bytes.substr(static_cast<size_t>(begin), expected.size()) == expected);
    CHECK(stored.chunks[i].crc == crc32c(expected));
  }
}

TEST_CASE("pieces come in any order and in any parts, and the file is the same") {
  FaultyFileSystem file_system;
  const std::vector<TensorChunk> chunks = some_pieces();
  ChunkFile plain(file_system, "plain", chunks);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto values = values_of(chunks[i]);
    plain.write(i, std::as_bytes(std::span(values)));
  }
  const StoredFile expected = plain.finish("f");
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    const std::string name = "mixed" + std::to_string(trial);
    ChunkFile mixed(file_system, name, chunks);
    struct Part {
      size_t chunk;
      int64_t begin, end;
    };
    std::vector<Part> parts;
    for (size_t i = 0; i < chunks.size(); ++i) {
      for (int64_t at = 0; at < chunks[i].bytes();) {
        const int64_t end =
            std::min(chunks[i].bytes(), at + 1 + static_cast<int64_t>(random() % 40));
        parts.push_back({i, at, end});
        at = end;
      }
    }
    std::shuffle(parts.begin(), parts.end(), random);
    for (const Part& part : parts) {
      const auto values = values_of(chunks[part.chunk]);
      mixed.write_at(part.chunk, part.begin,
                     std::as_bytes(std::span(values))
                         .subspan(static_cast<size_t>(part.begin),
                                  static_cast<size_t>(part.end - part.begin)));
    }
    CHECK(mixed.finish("f") == expected);
    CHECK(file_system.bytes_of(name) == file_system.bytes_of("plain"));
  }
}

void threads_write(int64_t elements) {
  FaultyFileSystem file_system;
  std::vector<TensorChunk> chunks;
  for (int i = 0; i < 4; ++i) {
    chunks.push_back(TensorChunk::full("w" + std::to_string(i), "master", "F32", {elements}));
  }
  ChunkFile file(file_system, "f", chunks);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < chunks.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto values = values_of(chunks[i]);
        const size_t part = values.size() / 10;
        for (size_t at = 0; at < values.size(); at += part) {
          file.write(i, std::as_bytes(std::span(values).subspan(at, part)));
        }
      });
    }
  }
  const StoredFile stored = file.finish("f");
  CHECK(stored.crc == crc32c(file_system.bytes_of("f")));
}

TEST_CASE("threads write different pieces at once") {
  threads_write(1000);
  threads_write(700'000);  // of several blocks that are written behind
}

TEST_CASE("a piece that is not written as a whole, or twice, is our mistake") {
  FaultyFileSystem file_system;
  const std::vector<TensorChunk> chunks = split("w", "master", {10}, {10});
  const auto values = values_of(chunks[0]);
  const auto bytes = std::as_bytes(std::span(values));
  ChunkFile half(file_system, "half", chunks);
  half.write(0, bytes.first(20));
  CHECK(message_of<InternalError>([&] { (void)half.finish("f"); }).find("was not written once") !=
        std::string::npos);
  ChunkFile twice(file_system, "twice", chunks);
  twice.write(0, bytes);
  twice.write_at(0, 4, bytes.first(4));
  CHECK_THROWS_AS((void)twice.finish("f"), InternalError);
  ChunkFile beyond(file_system, "beyond", chunks);
  CHECK_THROWS_AS(beyond.write_at(0, 8, bytes), InternalError);
  CHECK_THROWS_AS(beyond.write(1, bytes), InternalError);
}

TEST_CASE("what cannot be planned is refused before there is a file") {
  FaultyFileSystem file_system;
  TensorChunk chunk = TensorChunk::full("w", "master", "F32", {3});
  CHECK(message_of<Error>([&] {
          ChunkFile(file_system, "f", {chunk, chunk});
        }) == "duplicate piece w|master|0:3|0:3");
  chunk.range = {0, 4};
  CHECK(message_of<Error>([&] { ChunkFile(file_system, "f", {chunk}); }) ==
        "piece w|master|0:3|0:4: its range 0:4 is not within the 3 elements of its slice");
  const TensorChunk large = TensorChunk::full("a", "master", "F64", {(int64_t{1} << 60) - 1});
  TensorChunk another = large;
  another.tensor = "b";
  CHECK(message_of<Error>([&] {
          ChunkFile(file_system, "f", {large, another});
        }).find("file size overflow") != std::string::npos);
  chunk = TensorChunk::full("\xff", "master", "F32", {3});
  CHECK(message_of<Error>([&] { ChunkFile(file_system, "f", {chunk}); }).find("not UTF-8") !=
        std::string::npos);
  CHECK(file_system.list("").empty());
}

void fails_at_any_call(const std::vector<TensorChunk>& chunks, int64_t expected_calls) {
  const auto write = [&](FaultyFileSystem& file_system) {
    return write_pieces(file_system, "", 0, chunks);
  };
  FaultyFileSystem good;
  good.create_directory("zeroth");
  good.set_fault({});
  const StoredFile expected = write(good);
  const int64_t calls = good.calls();
  CHECK(calls == expected_calls);
  for (int64_t call = 1; call <= calls; ++call) {
    for (const int error : {ENOSPC, EDQUOT, EIO}) {
      FaultyFileSystem file_system;
      file_system.create_directory("zeroth");
      file_system.set_fault(
          FaultyFileSystem::Fault{call, FaultyFileSystem::Fault::Kind::kError, error});
      CHECK_THROWS_AS((void)write(file_system), FileSystemError);
    }
    FaultyFileSystem file_system;
    file_system.create_directory("zeroth");
    file_system.set_fault(FaultyFileSystem::Fault{call, FaultyFileSystem::Fault::Kind::kShort, 0});
    CHECK(write(file_system) == expected);
    CHECK(file_system.bytes_of(expected.name) == good.bytes_of(expected.name));
  }
}

TEST_CASE("a disk that fails at any call fails the file, and a short write does not") {
  // create, header, four pieces that are not empty, fsync, close
  fails_at_any_call(some_pieces(), 8);
  // create, three blocks, fsync, close
  fails_at_any_call(split("w", "master", {2'500'000}, {1'000'000, 1'499'999, 1}), 6);
}

}  // namespace zeroth::checkpoint::chunk_file_test
