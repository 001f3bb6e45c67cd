#include "offload/file_store.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "offload/file_lane.h"
#include "tests/offload/mount.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTileBytes = kTileGrid * 4;

FileStoreOptions options_in(const TempFolder& folder, size_t buffers = 4) {
  return {.place = {folder.path(), "test", 0, "optimizer"},
          .aio = {.block_size = 4096},
          .buffers = buffers,
          .buffer_bytes = kTileBytes};
}

Tile tile_at(int64_t i) {
  return {0, i * kTileGrid, (i + 1) * kTileGrid};
}

TileLease borrow(ShardStore& store, int64_t i, Access access) {
  return store.borrow(tile_at(i), torch::kCPU, access);
}

bool holds(ShardStore& store, int64_t i, double value) {
  return borrow(store, i, Access::kRead).tensor().eq(value).all().item<bool>();
}

void fill(ShardStore& store, int64_t tiles) {
  for (int64_t i = 0; i < tiles; ++i) {
    borrow(store, i, Access::kWrite).tensor().fill_(static_cast<double>(i));
  }
  store.settle();
}

std::ptrdiff_t entries(const char* folder) {
  const fs::directory_iterator files(folder);
  return std::distance(begin(files), end(files));
}

// The kernel lists a thread a moment longer than it can be joined, and a ring's workers so, too.
bool falls_to(std::ptrdiff_t count, const char* folder) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (entries(folder) != count) {
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
  TempFolder folder;
  const auto store = make_file_store(options_in(folder, 3));
  CHECK(store->bytes().file == 0);
  CHECK(store->bytes().host == 0);
  store->add(100, torch::kBFloat16);
  CHECK(store->bytes().file == 4096);
  CHECK(store->bytes().host == 3 * 4096);  // no more than the largest shard has
  store->add(10 * kTileGrid + 1);
  CHECK(store->bytes().file == 4096 + 10 * kTileBytes + 4096);
  CHECK(store->bytes().host == 3 * kTileBytes);
  CHECK(store->bytes().device == 0);
  CHECK(swap_descriptor() == -1);
  store->expect({{1, 0, kTileGrid}});
  REQUIRE(swap_descriptor() != -1);
  CHECK(::lseek(swap_descriptor(), 0, SEEK_END) == store->bytes().file);
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("tiles that are expected are read while the caller does something else") {
  TempFolder folder;
  const auto store = make_file_store(options_in(folder));
  store->add(10 * kTileGrid);
  fill(*store, 10);
  CHECK(store->traffic().bytes_written == 10 * kTileBytes);
  store->expect({tile_at(0), tile_at(1), tile_at(2), tile_at(3), tile_at(4)});
  for (int i = 0; i < 5000 && store->traffic().bytes_read < 4 * kTileBytes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(store->traffic().bytes_read == 4 * kTileBytes);
  CHECK(holds(*store, 0, 0));
  CHECK(store->traffic().under_way_s > 0);
}

TEST_CASE("misuse of a file store is a broken invariant") {
  TempFolder folder;
  const auto store = make_file_store(options_in(folder, 1));
  store->add(4 * kTileGrid + 5);
  const auto refused = [&](const Tile& tile, torch::Device device = torch::kCPU) {
    return message_of<InternalError>([&] { store->borrow(tile, device, Access::kRead); });
  };
  CHECK(refused({0, 1, kTileGrid}).find("not on the grid of 4096") != std::string::npos);
  CHECK(refused({0, 0, 5}).find("not on the grid of 4096") != std::string::npos);
  CHECK(refused({0, 0, 2 * kTileGrid}).find("buffers have 16384") != std::string::npos);
  CHECK(refused(tile_at(0), torch::kMeta).find("asked for meta") != std::string::npos);
  const auto lease = borrow(*store, 0, Access::kRead);
  CHECK(refused(tile_at(1)).find("all 1 buffers are borrowed") != std::string::npos);
  CHECK_THROWS_WITH_AS(store->add(1), doctest::Contains("rank-0.optimizer.swap after its first"),
                       InternalError);
}

TEST_CASE("a file that does not fit is an error of the first use, with path and bytes") {
  TempFolder folder;
  const Mount small(folder.path(), "tmpfs", "size=64k");
  if (!small) return;
  const auto store = make_file_store(options_in(folder));
  store->add(5 * kTileGrid);
  const std::string said = message_of<Error>([&] { store->expect({tile_at(0)}); });
  CHECK(said.find("zeroth-test/rank-0.optimizer.swap needs 80.0 KiB (81920 bytes)") !=
        std::string::npos);
  CHECK(message_of<Error>([&] { borrow(*store, 0, Access::kWrite); }) == said);
  store->settle();
}

TEST_CASE("a file that is held in memory is a note") {
  TempFolder folder;
  const Mount small(folder.path(), "tmpfs", "size=1m");
  if (!small) return;
  const auto store = make_file_store(options_in(folder));
  store->add(kTileGrid);
  CHECK(store->notes().empty());
  fill(*store, 1);
  REQUIRE(!store->notes().empty());
  CHECK(store->notes().front().find("held in memory (tmpfs)") != std::string::npos);
}

TEST_CASE("a file that is cut off during a run is an error with path and offset") {
  TempFolder folder;
  const auto store = make_file_store(options_in(folder));
  store->add(12 * kTileGrid);
  fill(*store, 12);
  REQUIRE(::ftruncate(swap_descriptor(), 3 * kTileBytes) == 0);
  CHECK(holds(*store, 2, 2));
  const std::string said = message_of<Error>([&] { holds(*store, 4, 4); });
  CHECK(said.starts_with("cannot read 4096 bytes at offset "));
  CHECK(said.find("zeroth-test/rank-0.optimizer.swap: only 0 bytes") != std::string::npos);
  CHECK(holds(*store, 11, 11));  // which is in a buffer
}

TEST_CASE("stores leave no descriptor, no thread and no name behind, and share a folder") {
  TempFolder folder;
  const auto descriptors = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  for (int round = 0; round < 50; ++round) {
    const auto optimizer = make_file_store(options_in(folder));
    FileStoreOptions other = options_in(folder);
    other.place.kind = "parameters";
    const auto parameters = make_file_store(other);
    optimizer->add(6 * kTileGrid);
    parameters->add(6 * kTileGrid);
    fill(*optimizer, 6);
    borrow(*parameters, 0, Access::kWrite).tensor().fill_(7);
    CHECK(holds(*optimizer, 0, 0));
    CHECK(holds(*parameters, 0, 7));
    optimizer->expect({tile_at(1), tile_at(2)});  // under way at the end
  }
  CHECK(entries("/proc/self/fd") == descriptors);
  CHECK(falls_to(threads, "/proc/self/task"));
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace zeroth::offload
