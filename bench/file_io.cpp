// file_io FOLDER [MIB [auto|uring|threads]]: write and read bandwidth of a swap file, in requests
// of 16 MiB that are cut into pieces of 1 MiB, 16 of them under way. bench/file_io.sh puts fio
// beside it.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "offload/file_io.h"

namespace {

using namespace zeroth::offload;
using IoEngine = IoWorkerOptions::IoEngine;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kRequest = 16 * kMiB;
constexpr size_t kBuffers = 3;

// As pseudo-random as a device that compresses needs.
void fill(std::span<std::byte> bytes) {
  uint64_t state = 88172645463325252;
  for (size_t i = 0; i < bytes.size(); i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(&bytes[i], &state, sizeof(state));
  }
}

// MiB/s of `begin(offset, buffer)` over the whole file, one request per buffer under way.
using Begin = std::function<FileIo::RequestId(uint64_t offset, std::span<std::byte> buffer)>;
double measure(FileIo& io, const SwapFile& file, std::span<std::byte> memory, const Begin& begin) {
  const auto start = std::chrono::steady_clock::now();
  std::deque<FileIo::RequestId> in_flight;
  const auto wait_for_oldest = [&] {
    io.wait(in_flight.front());
    in_flight.pop_front();
  };
  for (size_t i = 0; i * kRequest < file.size_bytes(); ++i) {
    if (in_flight.size() == kBuffers) wait_for_oldest();
    in_flight.push_back(begin(i * kRequest, memory.subspan(i % kBuffers * kRequest, kRequest)));
  }
  while (!in_flight.empty()) wait_for_oldest();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(file.size_bytes() / kMiB) / seconds.count();
}

IoEngine parse_engine(const std::string& name) {
  if (name == "auto") return IoEngine::kAuto;
  if (name == "uring") return IoEngine::kUring;
  if (name == "threads") return IoEngine::kThreads;
  throw zeroth::Error("no engine {}: auto, uring or threads", name);
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw zeroth::Error("usage: file_io FOLDER [MIB [auto|uring|threads]]");
  const size_t size = arguments.size() > 1 ? std::stoul(arguments[1]) * kMiB : 1024 * kMiB;
  const SwapFile file({arguments[0], "bench", 0}, (size + kRequest - 1) / kRequest * kRequest);
  FileBuffers pool(kBuffers, kRequest);
  fill(pool.memory());
  IoWorkerOptions options{.descriptor = file.descriptor(), .queue_depth = 16, .threads = 16};
  options.engine = parse_engine(arguments.size() > 2 ? arguments[2] : "auto");
  options.registered = {pool.memory()};
  IoWorkers workers = make_io_workers(options);
  for (const auto& note : file.notes()) fmt::print("note: {}\n", note);
  for (const auto& note : workers.notes) fmt::print("note: {}\n", note);
  FileIo io(file, std::move(workers));
  const double written = measure(io, file, pool.memory(),
                                 [&](uint64_t at, auto buffer) { return io.write(at, buffer); });
  const double read = measure(io, file, pool.memory(),
                              [&](uint64_t at, auto buffer) { return io.read(at, buffer); });
  fmt::print("write {:.0f} read {:.0f} MiB/s, {}\n", written, read, io.engine());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "file_io: {}\n", error.what());
    return 1;
  }
}
