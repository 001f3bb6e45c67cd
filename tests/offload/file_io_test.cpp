#include "offload/file_io.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "base/error.h"
#include "tests/offload/faulty_worker.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload::file_io_test {
namespace {

constexpr size_t kBlock = kFileAlignment;
constexpr size_t kPiece = 4 * kBlock;
constexpr size_t kFile = 256 * kBlock;  // 1 MiB

// A file, what is to lie in it, and a place to read to.
struct Fixture {
  TempFolder directory;
  SwapFile file{{directory.path(), "test", 3}, kFile};
  FileBuffers pool{2, kFile};
  std::span<std::byte> written = pool[0], back = pool[1];

  Fixture() { fill_randomly(written, 7); }

  IoWorkers workers(IoEngine engine) const { return make_io_workers(worker_options(file, engine)); }

  void write_all(FileIo& io) { io.wait(io.write(0, written)); }
  void read_all(FileIo& io) { io.wait(io.read(0, back)); }
};

}  // namespace

TEST_CASE("bytes come back as they were written, whatever order requests end and are waited in") {
  Fixture f;
  for (const auto engine : engines()) {
    FileIo io(f.file, f.workers(engine), kPiece);
    INFO(io.engine());
    std::fill(f.back.begin(), f.back.end(), std::byte{0});
    std::vector<FileIo::RequestId> tickets;
    for (size_t at = 0, blocks = 1; at < kFile; at += blocks * kBlock, blocks = blocks % 13 + 1) {
      blocks = std::min(blocks, (kFile - at) / kBlock);
      tickets.push_back(io.write(at, f.written.subspan(at, blocks * kBlock)));
    }
    for (auto request_id = tickets.rbegin(); request_id != tickets.rend(); ++request_id)
      io.wait(*request_id);
    const auto second = io.read(kFile / 2, f.back.subspan(kFile / 2));
    const auto first = io.read(0, f.back.first(kFile / 2));
    io.wait(second);
    io.wait(first);
    CHECK(same(f.back, f.written));
    CHECK(io.traffic().bytes_written == int64_t{kFile});
    CHECK(io.traffic().bytes_read == int64_t{kFile});
  }
}

TEST_CASE("requests of several threads do not disturb each other") {
  Fixture f;
  for (const auto engine : engines()) {
    FileIo io(f.file, f.workers(engine), kBlock);
    std::fill(f.back.begin(), f.back.end(), std::byte{0});
    std::vector<std::jthread> callers;
    for (size_t i = 0; i < 4; ++i) {
      callers.emplace_back([&, begin = i * kFile / 4] {
        for (size_t at = begin; at < begin + kFile / 4; at += kPiece) {
          io.wait(io.write(at, f.written.subspan(at, kPiece)));
          io.wait(io.read(at, f.back.subspan(at, kPiece)));
        }
      });
    }
    callers.clear();
    CHECK(same(f.back, f.written));
  }
}

TEST_CASE("a short transfer is continued and an interrupted one repeated") {
  Fixture f;
  for (const auto engine : engines()) {
    // 5000 bytes end within a block; 12288 with one.
    size_t calls = 0;
    const auto rule = [&](const IoOperation& piece) -> std::optional<int64_t> {
      switch (++calls % 5) {
        case 0:
          return -EINTR;
        case 1:
          return -EAGAIN;
        case 2:
          return std::min<int64_t>(5000, static_cast<int64_t>(piece.length));
        case 3:
          return std::min<int64_t>(12288, static_cast<int64_t>(piece.length));
        default:
          return std::nullopt;
      }
    };
    FileIo io(f.file, faulty(f.workers(engine), rule), kPiece);
    std::fill(f.back.begin(), f.back.end(), std::byte{0});
    f.write_all(io);
    f.read_all(io);
    CHECK(same(f.back, f.written));
    CHECK(io.traffic().bytes_read == int64_t{kFile});
    CHECK(io.traffic().bytes_written == int64_t{kFile});
  }
}

TEST_CASE("an error names path, offset, length and reason, and leaves other requests alone") {
  Fixture f;
  for (const auto engine : engines()) {
    const auto rule = [](const IoOperation& piece) -> std::optional<int64_t> {
      if (piece.op == FileOp::kRead && piece.offset == 2 * kPiece) return -EIO;
      if (piece.op == FileOp::kWrite && piece.offset == 8 * kPiece) return -ENOSPC;
      return std::nullopt;
    };
    FileIo io(f.file, faulty(f.workers(engine), rule), kPiece);
    const auto bad = io.write(4 * kPiece, f.written.subspan(4 * kPiece, 6 * kPiece));
    const auto good = io.write(0, f.written.first(4 * kPiece));
    CHECK(message_of<Error>([&] { io.wait(bad); }) ==
          fmt::format("cannot write 16384 bytes at offset 131072 of {}: No space left on device",
                      f.file.path()));
    io.wait(good);
    CHECK(message_of<Error>([&] { io.wait(io.read(0, f.back.first(4 * kPiece))); }) ==
          fmt::format("cannot read 16384 bytes at offset 32768 of {}: Input/output error",
                      f.file.path()));
    io.wait(io.read(0, f.back.first(2 * kPiece)));
    CHECK(same(f.back.first(2 * kPiece), f.written.first(2 * kPiece)));
  }
}

TEST_CASE("a request that failed has nothing under way when its error is thrown") {
  Fixture f;
  for (const auto engine : engines()) {
    size_t started = 0;
    const auto rule = [&](const IoOperation&) -> std::optional<int64_t> {
      if (++started == 3) return -EIO;
      return std::nullopt;
    };
    FileIo io(f.file, faulty(f.workers(engine), rule), kBlock);
    CHECK_THROWS_WITH_AS(f.read_all(io), doctest::Contains("Input/output error"), Error);
    // What came later was not even begun: 8 pieces are under way at most.
    CHECK(started < 64);
    f.write_all(io);  // its buffer is not read into any more
    f.read_all(io);
    CHECK(same(f.back, f.written));
  }
}

TEST_CASE("a transfer that makes no progress for ever is an error") {
  Fixture f;
  for (const auto engine : engines()) {
    for (const int64_t result : {int64_t{-EAGAIN}, int64_t{-EINTR}, int64_t{0}, int64_t{100}}) {
      const auto rule = [&](const IoOperation& piece) -> std::optional<int64_t> {
        if (piece.offset == kPiece) return result;
        return std::nullopt;
      };
      FileIo io(f.file, faulty(f.workers(engine), rule), kPiece);
      CHECK_THROWS_WITH_AS(f.write_all(io), doctest::Contains("at offset 16384 of"), Error);
    }
  }
}

TEST_CASE("a truncated file is an error that says where it ends") {
  Fixture f;
  for (const auto engine : engines()) {
    FileIo io(f.file, f.workers(engine), kPiece);
    REQUIRE(::ftruncate(f.file.descriptor(), kFile / 2 + 100) == 0);
    CHECK(message_of<Error>([&] { f.read_all(io); }).find("of " + f.file.path() + ": only ") !=
          std::string::npos);
    io.wait(io.read(0, f.back.first(kFile / 2)));  // up to there all is well
    f.write_all(io);                               // and a write makes it whole again
    f.read_all(io);
    CHECK(same(f.back, f.written));
  }
}

TEST_CASE("whether a request has ended is known without waiting, and how long any was under way") {
  Fixture f;
  for (const auto engine : engines()) {
    std::atomic<bool> hold = true;
    FileIo io(f.file,
              faulty(f.workers(engine),
                     [&](const IoOperation&) -> std::optional<int64_t> {
                       while (hold) std::this_thread::yield();
                       return std::nullopt;
                     }),
              kPiece);
    CHECK(io.traffic().in_flight_s == 0);
    const auto request_id = io.write(0, f.written.first(kPiece));
    CHECK_FALSE(io.ended(request_id));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(io.traffic().in_flight_s >= 0.02);
    hold = false;
    for (int i = 0; i < 5000 && !io.ended(request_id); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(io.ended(request_id));
    const double until_then = io.traffic().in_flight_s;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(io.traffic().in_flight_s == until_then);
    CHECK(io.traffic().writing_s > 0);
    CHECK(io.traffic().reading_s == 0);
    io.wait(request_id);
    CHECK_THROWS_AS(io.ended(request_id), InternalError);
  }
}

TEST_CASE("requests that nobody waited for end before the memory they use") {
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kFile);
  for (const auto engine : engines()) {
    for (int round = 0; round < 20; ++round) {
      const FileBuffers pool(1, kFile);
      FileIo io(file, make_io_workers(worker_options(file, engine)), kBlock);
      io.write(0, pool.memory());
      io.read(0, pool.memory());
    }
  }
}

TEST_CASE("requests that were not begun are dropped with the object") {
  Fixture f;
  for (const auto engine : engines()) {
    size_t started = 0;
    const auto slowly = [&](const IoOperation&) -> std::optional<int64_t> {
      ++started;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return std::nullopt;
    };
    {
      FileIo io(f.file, faulty(f.workers(engine), slowly), kBlock);
      io.read(0, f.back);
    }
    CHECK(started < kFile / kBlock);
  }
}

TEST_CASE("no file descriptor is left behind") {
  Fixture f;
  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_descriptors();
  for (const auto engine : engines()) {
    for (int round = 0; round < 10; ++round) {
      FileIo io(f.file, f.workers(engine), kPiece);
      f.write_all(io);
    }
  }
  { const SwapFile another({f.directory.path(), "test", 4}, kFile); }
  CHECK(open_descriptors() == before);
}

TEST_CASE("requests that are not aligned or leave the file are bugs") {
  Fixture f;
  FileIo io(f.file, f.workers(IoEngine::kThreads), kPiece);
  CHECK_THROWS_AS(io.read(1, f.back.first(kBlock)), InternalError);
  CHECK_THROWS_AS(io.read(0, f.back.first(100)), InternalError);
  CHECK_THROWS_AS(io.read(0, f.back.subspan(8, kBlock)), InternalError);
  CHECK_THROWS_AS(io.read(kFile, f.back.first(kBlock)), InternalError);
  CHECK_THROWS_AS(io.read(uint64_t{0} - kBlock, f.back.first(kBlock)), InternalError);
  CHECK_THROWS_AS(io.write(0, f.back.first(0)), InternalError);
  CHECK_THROWS_AS(io.wait(0), InternalError);
}

TEST_CASE("buffers are aligned, apart and zero") {
  const FileBuffers buffers(3, 5 * kFileAlignment);
  CHECK(buffers.count() == 3);
  CHECK(buffers.memory().size() == 15 * kFileAlignment);
  for (size_t i = 0; i < buffers.count(); ++i) {
    const std::span<std::byte> buffer = buffers[i];
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % kFileAlignment == 0);
    CHECK(buffer.size() == 5 * kFileAlignment);
    for (const std::byte byte : buffer) {
      if (byte != std::byte{0}) FAIL("a buffer is not zero, so it overlaps another");
    }
    std::fill(buffer.begin(), buffer.end(), std::byte{1});
  }
}

TEST_CASE("memory that the system does not have is an error with its size") {
  CHECK_THROWS_WITH_AS(FileBuffers(1 << 20, size_t{1} << 40),
                       doctest::Contains("file buffers of 1099511627776 bytes): Cannot allocate"),
                       Error);
  CHECK_THROWS_AS(FileBuffers(1, 100), InternalError);
  CHECK_THROWS_AS(FileBuffers(size_t{1} << 40, size_t{1} << 40), InternalError);
}

}  // namespace zeroth::offload::file_io_test
