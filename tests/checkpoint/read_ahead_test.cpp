#include "checkpoint/buffered_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::read_ahead_test {
namespace {

constexpr int64_t kBlock = TransferBuffer::kBytes;

std::byte byte_at(int64_t offset) {
  return static_cast<std::byte>((offset * 37 + (offset >> 12)) & 0xff);
}

// What a file of such bytes was asked for.
struct Log {
  std::mutex mutex;
  std::vector<int64_t> offsets;
  std::vector<int64_t> taken() {
    const std::lock_guard lock(mutex);
    return offsets;
  }
};

class File : public RandomAccessFile {
 public:
  File(int64_t size, Log& log) : size_(size), log_(log) {}
  int64_t size() const override { return size_; }
  size_t read(std::span<std::byte> bytes, int64_t offset) override {
    {
      const std::lock_guard lock(log_.mutex);
      log_.offsets.push_back(offset);
    }
    if (bad_at >= offset && bad_at < offset + std::ssize(bytes)) throw Error("byte {}", bad_at);
    const int64_t left = std::max<int64_t>(ends_at.value_or(size_) - offset, 0);
    const auto done = static_cast<size_t>(std::min({left, std::ssize(bytes), max_bytes}));
    for (size_t i = 0; i < done; ++i) bytes[i] = byte_at(offset + static_cast<int64_t>(i));
    return done;
  }

  int64_t bad_at = -1;
  int64_t max_bytes = kBlock;      // that a read brings
  std::optional<int64_t> ends_at;  // by now

 private:
  int64_t size_;
  Log& log_;
};

bool reads_right(RandomAccessFile& file, int64_t offset, int64_t size) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  read_all(file, bytes, offset, "P");
  for (int64_t i = 0; i < size; ++i) {
    if (bytes[static_cast<size_t>(i)] != byte_at(offset + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("whatever the order of reads, they bring the bytes of the file") {
  std::mt19937 random(7);
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  for (const int64_t size : {kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 5 * kBlock + 777}) {
    Log log;
    auto inner = std::make_unique<File>(size, log);
    inner->max_bytes = 1 + below(2 * kBlock);
    const auto file = read_ahead(std::move(inner));
    CHECK(file->size() == size);
    int64_t at = 0;
    for (int i = 0; i < 60; ++i) {
      // Mostly on, and now and then to anywhere.
      if (at == size || below(5) == 0) at = below(size);
      const int64_t bytes = std::min(1 + below(below(2) == 0 ? 1000 : kBlock), size - at);
      REQUIRE(reads_right(*file, at, bytes));
      at += bytes;
    }
    std::byte behind{};
    CHECK(file->read({&behind, 1}, size) == 0);
  }
}

TEST_CASE("blocks are fetched ahead while reads follow each other, else one; small ones are not") {
  Log log;
  const int64_t size = 20 * kBlock;
  {
    const auto file = read_ahead(std::make_unique<File>(size, log));
    REQUIRE(reads_right(*file, 10, 100));
    REQUIRE(reads_right(*file, 15 * kBlock + 5, 100));
    CHECK(log.taken() == std::vector<int64_t>{10, 15 * kBlock + 5});
    REQUIRE(reads_right(*file, kBlock + 5, 100'000));
    REQUIRE(reads_right(*file, 9 * kBlock, 100'000));
    CHECK(log.taken() == std::vector<int64_t>{10, 15 * kBlock + 5, kBlock, 9 * kBlock});
    REQUIRE(reads_right(*file, 9 * kBlock + 100'000, 10));
    while (log.taken().size() < 6) std::this_thread::yield();
  }
  const std::vector<int64_t> all = log.taken();
  CHECK(all ==
        std::vector<int64_t>{10, 15 * kBlock + 5, kBlock, 9 * kBlock, 10 * kBlock, 11 * kBlock});
}

TEST_CASE("a file of one block is not touched before somebody reads") {
  Log log;
  const auto file = read_ahead(std::make_unique<File>(kBlock, log));
  REQUIRE(reads_right(*file, 0, 100'000));
  REQUIRE(reads_right(*file, 100'000, 100'000));
  CHECK(log.taken() == std::vector<int64_t>{0, 100'000});
}

TEST_CASE("what the file throws comes to the reads of its block alone; a file cut short is told") {
  Log log;
  auto inner = std::make_unique<File>(6 * kBlock, log);
  inner->bad_at = 2 * kBlock + 17;
  const auto file = read_ahead(std::move(inner));
  REQUIRE(reads_right(*file, 0, 2 * kBlock));
  std::vector<std::byte> bytes(100'000);
  const auto message = [&](RandomAccessFile& from, int64_t offset) {
    return message_of<Error>([&] { read_all(from, bytes, offset, "P"); });
  };
  CHECK(message(*file, 2 * kBlock) == "byte 8388625");
  CHECK(reads_right(*file, 3 * kBlock, 3 * kBlock));

  auto shorter = std::make_unique<File>(6 * kBlock, log);
  shorter->ends_at = 2 * kBlock + 50'000;
  const auto cut = read_ahead(std::move(shorter));
  CHECK(reads_right(*cut, 2 * kBlock - 100'000, 150'000));
  CHECK(message(*cut, 2 * kBlock) == "P is cut short: 50000 bytes are missing at byte 8438608");
}

}  // namespace zeroth::checkpoint::read_ahead_test
