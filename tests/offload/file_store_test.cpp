#include "offload/file_store.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "offload/io_worker.h"
#include "tests/offload/mount.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload::file_store_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkBytes = kChunkAlignment * 4;

FileStoreOptions options_in(const TempFolder& directory, size_t buffers = 4) {
  return {.place = {directory.path(), "test", 0, "optimizer"},
          .aio = {.block_size = 4096},
          .buffers = buffers,
          .buffer_bytes = kChunkBytes};
}

ShardChunk chunk_at(int64_t i) {
  return {0, i * kChunkAlignment, (i + 1) * kChunkAlignment};
}

ChunkLease acquire(ShardStore& store, int64_t i, Access access) {
  return store.acquire(chunk_at(i), torch::kCPU, access);
}

bool holds(ShardStore& store, int64_t i, double value) {
  return acquire(store, i, Access::kRead).tensor().eq(value).all().item<bool>();
}

void fill(ShardStore& store, int64_t chunks) {
  for (int64_t i = 0; i < chunks; ++i) {
    acquire(store, i, Access::kWrite).tensor().fill_(static_cast<double>(i));
  }
  store.flush();
}

std::ptrdiff_t entries(const char* directory) {
  const fs::directory_iterator files(directory);
  return std::distance(begin(files), end(files));
}

// The kernel lists a thread a moment longer than it can be joined, and a ring's workers so, too.
bool falls_to(std::ptrdiff_t count, const char* directory) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (entries(directory) != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// The descriptor of the only swap file of this process.
int swap_descriptor() {
  for (const auto& file : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(file.path(), ignored).string().find(".swap") != std::string::npos) {
      return std::atoi(file.path().filename().c_str());
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("a file store counts its bytes before it has made them") {
  TempFolder directory;
  const auto store = make_file_store(options_in(directory, 3));
  CHECK(store->bytes().file == 0);
  CHECK(store->bytes().host == 0);
  store->add(100, torch::kBFloat16);
  CHECK(store->bytes().file == 4096);
  CHECK(store->bytes().host == 3 * 4096);  // no more than the largest shard has
  store->add(10 * kChunkAlignment + 1);
  CHECK(store->bytes().file == 4096 + 10 * kChunkBytes + 4096);
  CHECK(store->bytes().host == 3 * kChunkBytes);
  CHECK(store->bytes().device == 0);
  CHECK(swap_descriptor() == -1);
  store->prefetch({{1, 0, kChunkAlignment}});
  REQUIRE(swap_descriptor() != -1);
  CHECK(::lseek(swap_descriptor(), 0, SEEK_END) == store->bytes().file);
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("tiles that are expected are read while the caller does something else") {
  TempFolder directory;
  const auto store = make_file_store(options_in(directory));
  store->add(10 * kChunkAlignment);
  fill(*store, 10);
  CHECK(store->traffic().bytes_written == 10 * kChunkBytes);
  store->prefetch({chunk_at(0), chunk_at(1), chunk_at(2), chunk_at(3), chunk_at(4)});
  for (int i = 0; i < 5000 && store->traffic().bytes_read < 4 * kChunkBytes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(store->traffic().bytes_read == 4 * kChunkBytes);
  CHECK(holds(*store, 0, 0));
  CHECK(store->traffic().in_flight_s > 0);
}

TEST_CASE("misuse of a file store is a broken invariant") {
  TempFolder directory;
  const auto store = make_file_store(options_in(directory, 1));
  store->add(4 * kChunkAlignment + 5);
  const auto refused = [&](const ShardChunk& chunk, torch::Device device = torch::kCPU) {
    return message_of<InternalError>([&] { store->acquire(chunk, device, Access::kRead); });
  };
  CHECK(refused({0, 1, kChunkAlignment}).find("not aligned to 4096") != std::string::npos);
  CHECK(refused({0, 0, 5}).find("not aligned to 4096") != std::string::npos);
  CHECK(refused({0, 0, 2 * kChunkAlignment}).find("buffers have 16384") != std::string::npos);
  CHECK(refused(chunk_at(0), torch::kMeta).find("requested on meta") != std::string::npos);
  const auto lease = acquire(*store, 0, Access::kRead);
  CHECK(refused(chunk_at(1)).find("all 1 buffers are leased") != std::string::npos);
  CHECK_THROWS_WITH_AS(store->add(1), doctest::Contains("rank-0.optimizer.swap after its first"),
                       InternalError);
}

TEST_CASE("a file that does not fit is an error of the first use, with path and bytes") {
  TempFolder directory;
  const Mount small(directory.path(), "tmpfs", "size=64k");
  if (!small) return;
  const auto store = make_file_store(options_in(directory));
  store->add(5 * kChunkAlignment);
  const std::string said = message_of<Error>([&] { store->prefetch({chunk_at(0)}); });
  CHECK(said.find("zeroth-test/rank-0.optimizer.swap needs 80.0 KiB (81920 bytes)") !=
        std::string::npos);
  CHECK(message_of<Error>([&] { acquire(*store, 0, Access::kWrite); }) == said);
  store->flush();
}

TEST_CASE("a file that is held in memory is a note") {
  TempFolder directory;
  const Mount small(directory.path(), "tmpfs", "size=1m");
  if (!small) return;
  const auto store = make_file_store(options_in(directory));
  store->add(kChunkAlignment);
  CHECK(store->notes().empty());
  fill(*store, 1);
  REQUIRE(!store->notes().empty());
  CHECK(store->notes().front().find("held in memory (tmpfs)") != std::string::npos);
}

TEST_CASE("a file that is cut off during a run is an error with path and offset") {
  TempFolder directory;
  const auto store = make_file_store(options_in(directory));
  store->add(12 * kChunkAlignment);
  fill(*store, 12);
  REQUIRE(::ftruncate(swap_descriptor(), 3 * kChunkBytes) == 0);
  CHECK(holds(*store, 2, 2));
  const std::string said = message_of<Error>([&] { holds(*store, 4, 4); });
  CHECK(said.starts_with("cannot read 4096 bytes at offset "));
  CHECK(said.find("zeroth-test/rank-0.optimizer.swap: only 0 bytes") != std::string::npos);
  CHECK(holds(*store, 11, 11));  // which is in a buffer
}

TEST_CASE("stores leave no descriptor, no thread and no name behind, and share a folder") {
  TempFolder directory;
  const auto descriptors = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  for (int round = 0; round < 50; ++round) {
    const auto optimizer = make_file_store(options_in(directory));
    FileStoreOptions other = options_in(directory);
    other.place.kind = "parameters";
    const auto parameters = make_file_store(other);
    optimizer->add(6 * kChunkAlignment);
    parameters->add(6 * kChunkAlignment);
    fill(*optimizer, 6);
    acquire(*parameters, 0, Access::kWrite).tensor().fill_(7);
    CHECK(holds(*optimizer, 0, 0));
    CHECK(holds(*parameters, 0, 7));
    optimizer->prefetch({chunk_at(1), chunk_at(2)});  // under way at the end
  }
  CHECK(entries("/proc/self/fd") == descriptors);
  CHECK(falls_to(threads, "/proc/self/task"));
  CHECK(fs::is_empty(directory.path()));
}

}  // namespace zeroth::offload::file_store_test
