// tile_pipeline FOLDER [GIB [ROUNDS [BUFFERS]]]: AdamW on masters and moments that rest in a file
// (offload/chunk_cache.h), three tiles of 16 MiB read, updated and written at a time, beside the
// same reads and writes with nothing between them; in turns on one file, medians of ROUNDS.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/chunk_cache.h"
#include "optim/cpu/cpu_update.h"

namespace {

using namespace zeroth::offload;
constexpr double kMiB = 1 << 20;
constexpr size_t kChunkBytes = size_t{16} << 20;
constexpr size_t kNumArrays = 3;  // master and two moments
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Random bytes, as a device that compresses needs, that are sound fp32 numbers.
void fill(std::span<std::byte> bytes, uint64_t state) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint32_t)) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint32_t number = static_cast<uint32_t>(state >> 41) | 0x3c000000;  // in [2^-7, 2^-6)
    std::memcpy(&bytes[i], &number, sizeof(number));
  }
}

struct TilePipelineBench {
  TilePipelineBench(const std::string& directory, size_t tiles, size_t buffers)
      : file({directory, "bench", 0}, tiles * kChunkBytes),
        pool(buffers, kChunkBytes),
        bare(buffers, kChunkBytes),
        io(file, make_io_workers({.descriptor = file.descriptor(),
                                  .registered = {pool.memory(), bare.memory()}})),
        cache(io, pool) {
    for (size_t i = 0; i < tiles; ++i) {
      extents.push_back({i * kChunkBytes, kChunkBytes});
      fill(cache.acquire(extents[i], Access::kWrite).bytes(), i);
    }
    cache.flush();
  }

  // Reads each tile and writes it back, half of the buffers ahead.
  double bare_rate() {
    const size_t tiles = extents.size(), buffers = bare.memory().size() / kChunkBytes;
    const auto at = [&](size_t i) {
      return bare.memory().subspan(i % buffers * kChunkBytes, kChunkBytes);
    };
    std::vector<FileIo::RequestId> reads, writes;
    const auto start = Clock::now();
    while (writes.size() < tiles) {
      const size_t i = reads.size();
      if (i < tiles && i < writes.size() + buffers / 2) {
        if (i >= buffers) io.wait(writes[i - buffers]);
        reads.push_back(io.read(i * kChunkBytes, at(i)));
      } else {
        io.wait(reads[writes.size()]);
        writes.push_back(io.write(writes.size() * kChunkBytes, at(writes.size())));
      }
    }
    for (size_t i = tiles - std::min(tiles, buffers); i < tiles; ++i) io.wait(writes[i]);
    return 2.0 * static_cast<double>(file.size_bytes()) / seconds_since(start);
  }

  // The rate, and the share of the time in which the update waited for the file.
  std::pair<double, double> update_rate(int64_t update) {
    const Traffic before = cache.traffic();
    const auto start = Clock::now();
    cache.prefetch(extents);
    for (size_t i = 0; i < extents.size(); i += kNumArrays) {
      const auto master = cache.acquire(extents[i], Access::kReadWrite);
      const auto first = cache.acquire(extents[i + 1], Access::kReadWrite);
      const auto second = cache.acquire(extents[i + 2], Access::kReadWrite);
      adam.apply({.count = static_cast<int64_t>(kChunkBytes / sizeof(float)),
                  .master = master.bytes().data(),
                  .states = {first.bytes().data(), second.bytes().data()},
                  .grad = grad.data()},
                 {.update = update, .lr = 1e-3});
    }
    cache.flush();
    const double seconds = seconds_since(start);
    const Traffic moved = cache.traffic() - before;
    return {static_cast<double>(moved.bytes_read + moved.bytes_written) / seconds,
            moved.waited_s / seconds};
  }

  SwapFile file;
  FileBuffers pool;  // of the cache
  FileBuffers bare;
  FileIo io;
  ChunkCache cache;
  std::vector<Extent> extents;
  const zeroth::optim::CpuUpdate adam{zeroth::configs::OptimizerConfig{}};
  const std::vector<float> grad = std::vector<float>(kChunkBytes / sizeof(float), 0.01F);
};

void run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw zeroth::Error("usage: tile_pipeline FOLDER [GIB [ROUNDS [BUFFERS]]]");
  }
  const auto number = [&](size_t i, size_t fallback) {
    return arguments.size() > i ? std::stoul(arguments[i]) : fallback;
  };
  const size_t rounds = number(2, 5), buffers = number(3, 4 * kNumArrays);
  TilePipelineBench bench(arguments[0],
                          (number(1, 4) << 30) / kChunkBytes / kNumArrays * kNumArrays, buffers);
  std::vector<double> bare, update, waited;
  for (size_t round = 1; round <= rounds; ++round) {
    if (round % 2 == 0) bare.push_back(bench.bare_rate());  // each is first in turn
    const auto [rate, share] = bench.update_rate(static_cast<int64_t>(round));
    update.push_back(rate);
    waited.push_back(share);
    if (round % 2 != 0) bare.push_back(bench.bare_rate());
    fmt::print("round {}: read and write {:.0f} MiB/s, with AdamW {:.0f} MiB/s, waited {:.0f} %\n",
               round, bare.back() / kMiB, rate / kMiB, 100 * share);
  }
  fmt::print("medians: {:.0f} MiB/s, with AdamW {:.0f} MiB/s: {:.0f} %, waited {:.0f} %; {}\n",
             median(bare) / kMiB, median(update) / kMiB, 100 * median(update) / median(bare),
             100 * median(waited), bench.io.engine());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "tile_pipeline: {}\n", error.what());
    return 1;
  }
}
