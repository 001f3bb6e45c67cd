#include "checkpoint/buffered_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/files/crc32c.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::write_behind_test {
namespace {

constexpr int64_t kBlock = TransferBuffer::kBytes;

// What a file was asked to do, and its bytes.
struct Seen {
  std::vector<std::string> calls;
  std::vector<std::byte> bytes;
};

class File : public WritableFile {
 public:
  explicit File(Seen& seen) : seen_(seen) {}
  size_t write(std::span<const std::byte> bytes, int64_t offset) override {
    if (offset <= bad_at && bad_at < offset + std::ssize(bytes)) throw Error("byte {}", bad_at);
    const auto done = static_cast<size_t>(std::min(max_bytes, std::ssize(bytes)));
    const size_t end = static_cast<size_t>(offset) + done;
    if (seen_.bytes.size() < end) seen_.bytes.resize(end);
    std::copy_n(bytes.begin(), done, seen_.bytes.begin() + offset);
    seen_.calls.push_back(fmt::format("{}+{}", offset, done));
    aligned &=
        reinterpret_cast<uintptr_t>(bytes.data()) % 4096 == static_cast<uintptr_t>(offset) % 4096;
    return done;
  }
  void sync() override { seen_.calls.push_back("sync"); }
  void close() override { seen_.calls.push_back("close"); }

  int64_t bad_at = -1;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  bool aligned = true;

 private:
  Seen& seen_;
};

std::vector<std::byte> random_bytes(int64_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("parts in any order come to the file as they are, at addresses like their offsets") {
  std::mt19937 random(3);
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  for (int round = 0; round < 6; ++round) {
    const std::vector<std::byte> expected = random_bytes(1 + below(4 * kBlock), random);
    const auto size = std::ssize(expected);
    std::vector<int64_t> cuts = {0, size};
    for (int i = 0; i < 20; ++i) cuts.push_back(below(size));
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (round % 2 == 1) std::shuffle(order.begin(), order.end(), random);
    Seen seen;
    auto inner = std::make_unique<File>(seen);
    File& file = *inner;
    if (round > 3) file.max_bytes = 1 + below(kBlock);
    const auto behind = write_behind(std::move(inner), 5 * kBlock);
    for (const size_t i : order) {
      const auto part = std::span(expected).subspan(static_cast<size_t>(cuts[i]),
                                                    static_cast<size_t>(cuts[i + 1] - cuts[i]));
      if (i % 2 == 0) {
        write_all(*behind, part, cuts[i]);
      } else {
        CHECK(write_all_with_crc(*behind, part, cuts[i]) == crc32c(part));
      }
    }
    behind->sync();
    CHECK(seen.bytes == expected);
    CHECK(file.aligned);
    CHECK(seen.calls.back() == "sync");
    behind->close();
    CHECK(seen.calls.back() == "close");
  }
}

TEST_CASE("what follows is gathered up to a block's end; what does not is written by itself") {
  Seen seen;
  std::mt19937 random(4);
  const std::vector<std::byte> bytes = random_bytes(kBlock, random);
  const auto part = [&](int64_t size) { return std::span(bytes).first(static_cast<size_t>(size)); };
  const auto file = write_behind(std::make_unique<File>(seen), 6 * kBlock);
  for (int i = 0; i < 3; ++i) write_all(*file, part(1000), 100 + 1000 * i);
  write_all(*file, part(kBlock), 3100);
  write_all(*file, part(10), 5 * kBlock);
  file->sync();
  using Calls = std::vector<std::string>;
  CHECK(seen.calls == Calls{fmt::format("100+{}", kBlock - 100), fmt::format("{}+3100", kBlock),
                            fmt::format("{}+10", 5 * kBlock), "sync"});
}

TEST_CASE("what the file throws, a later call throws, and every sync and close") {
  Seen seen;
  std::mt19937 random(5);
  const std::vector<std::byte> bytes = random_bytes(kBlock, random);
  for (const int64_t bad : {int64_t{5}, kBlock + 5, 3 * kBlock + 5}) {
    auto inner = std::make_unique<File>(seen);
    inner->bad_at = bad;
    const auto file = write_behind(std::move(inner), 5 * kBlock);
    const std::string why = fmt::format("byte {}", bad);
    const auto write = [&] {
      for (int64_t block = 0; block < 3; ++block) write_all(*file, bytes, block * kBlock);
      write_all(*file, std::span(bytes).first(10), 3 * kBlock);
    };
    if (bad < kBlock) {
      CHECK(message_of<Error>(write) == why);
    } else {
      try {
        write();
      } catch (const Error& error) {
        CHECK(std::string(error.what()) == why);
      }
    }
    for (int i = 0; i < 2; ++i) {
      CHECK(message_of<Error>([&] { file->sync(); }) == why);
      CHECK(message_of<Error>([&] { file->close(); }) == why);
    }
    for (const char* call : {"sync", "close"}) {
      CHECK(std::find(seen.calls.begin(), seen.calls.end(), call) == seen.calls.end());
    }
  }
}

TEST_CASE("a file of one block is written at once") {
  Seen seen;
  std::mt19937 random(8);
  const auto file = write_behind(std::make_unique<File>(seen), kBlock);
  write_all(*file, random_bytes(10, random), 5);
  CHECK(seen.calls == std::vector<std::string>{"5+10"});
}

TEST_CASE("a file that is given up is not waited for any longer than a block takes") {
  Seen seen;
  std::mt19937 random(6);
  const std::vector<std::byte> bytes = random_bytes(kBlock, random);
  {
    const auto file = write_behind(std::make_unique<File>(seen), 6 * kBlock);
    write_all(*file, bytes, 0);
    write_all(*file, std::span(bytes).first(10), kBlock);
  }
  CHECK(std::find(seen.calls.begin(), seen.calls.end(), "sync") == seen.calls.end());
  CHECK(seen.bytes.size() <= bytes.size());
}

}  // namespace zeroth::checkpoint::write_behind_test
