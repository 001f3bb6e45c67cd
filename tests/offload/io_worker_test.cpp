#include "offload/io_worker.h"

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>

#include "offload/file_io.h"
#include "tests/offload/faulty_worker.h"
#include "tests/support/temp_folder.h"

namespace zeroth::offload::io_worker_test {
namespace {

constexpr size_t kSize = 64 * kFileAlignment;

bool has_uring() {
  return engines().front() == IoEngine::kUring;
}

// In a process of its own, which may deny itself what it likes: the text that `work` returns.
template <typename Work>
std::string in_child(Work work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const bool written = ::write(ends[1], text.data(), text.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(1 << 16, '\0');
  size_t size = 0;
  for (ssize_t more = 1; more > 0; size += static_cast<size_t>(more)) {
    more = ::read(ends[0], text.data() + size, text.size() - size);
    if (more < 0) break;
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text.substr(0, size);
}

// As a container's profile does.
bool forbid_io_uring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Writes random bytes, reads them back: "engine|notes" or what went wrong.
std::string round_trip(const SwapFile& file, IoEngine engine, bool registered) {
  FileBuffers pool(2, kSize);
  const std::span<std::byte> written = pool[0], back = pool[1];
  fill_randomly(written, 5);
  IoWorkerOptions options = worker_options(file, engine);
  if (registered) options.registered = {pool.memory()};
  IoWorkers workers = make_io_workers(options);
  std::string said = workers.engine;
  for (const auto& note : workers.notes) said += "|" + note;
  FileIo io(file, std::move(workers), 4 * kFileAlignment);
  io.wait(io.write(0, written));
  io.wait(io.read(0, back));
  return same(written, back) ? said : "other bytes came back";
}

}  // namespace

TEST_CASE("the engine is the one that was asked for, with its reason") {
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kSize);
  CHECK(round_trip(file, IoEngine::kThreads, true) == "3 threads (as requested)");
  if (!has_uring()) return;
  CHECK(round_trip(file, IoEngine::kAuto, true) == "io_uring, queue 8, registered buffers");
  CHECK(round_trip(file, IoEngine::kUring, false) == "io_uring, queue 8");
}

TEST_CASE("where io_uring is refused, threads take its place and say why") {
  if (!has_uring()) return;
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kSize);
  const auto refusal = [&](IoEngine engine) {
    return in_child([&] {
      return forbid_io_uring() ? round_trip(file, engine, true) : std::string("no seccomp");
    });
  };
  const std::string reason =
      "io_uring: Operation not permitted, as by a container's seccomp profile";
  if (refusal(IoEngine::kAuto) == "no seccomp") {
    MESSAGE("skipped: seccomp filters are not allowed");
    return;
  }
  CHECK(refusal(IoEngine::kAuto) ==
        "3 threads (" + reason +
            ")|files are read and written by 3 threads instead of io_uring, "
            "which costs some speed (" +
            reason + ")");
  CHECK(refusal(IoEngine::kUring) == "io_uring is not available: " + reason);
}

TEST_CASE("too little locked memory is a note, and buffers are used unregistered") {
  if (!has_uring()) return;
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become a user without locked memory");
    return;
  }
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kSize);
  const auto with_locked_memory = [&](rlim_t bytes) {
    return in_child([&] {
      const rlimit limit{bytes, bytes};
      const bool denied = ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::setuid(65534) == 0;
      return denied ? round_trip(file, IoEngine::kAuto, true) : std::string("not denied");
    });
  };
  const std::string said = with_locked_memory(256 * 1024);
  CHECK(said ==
        "io_uring, queue 8|512 KiB of buffers cannot be registered with io_uring (Cannot allocate "
        "memory; locked memory, ulimit -l, is 256 KiB): they are used unregistered, which costs "
        "some speed");
  // The ring itself may count too, as the kernel's version has it.
  const std::string none = with_locked_memory(0);
  CHECK((none.find("is 0 B): they are used unregistered") != std::string::npos ||
         none.starts_with(
             "3 threads (io_uring: Cannot allocate memory, locked memory, ulimit -l, is 0 B)|")));
}

TEST_CASE("memory in, across and outside registered regions is transferred alike") {
  if (!has_uring()) return;
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kSize);
  FileBuffers pool(1, kSize);
  FileBuffers other(1, kSize);
  fill_randomly(pool.memory(), 5);
  IoWorkerOptions options = worker_options(file, IoEngine::kUring);
  options.registered = {pool.memory().subspan(kSize / 2, kSize / 4),
                        pool.memory().first(kSize / 2)};
  FileIo io(file, make_io_workers(options), 3 * kFileAlignment);
  io.wait(io.write(0, pool.memory()));
  io.wait(io.read(0, other.memory()));
  CHECK(same(pool.memory(), other.memory()));
  std::fill(pool.memory().begin(), pool.memory().end(), std::byte{0});
  io.wait(io.read(0, pool.memory()));
  CHECK(same(pool.memory(), other.memory()));
}

TEST_CASE("a lane that waits is woken, also by a call before it waits") {
  TempFolder directory;
  const SwapFile file({directory.path(), "test", 0}, kSize);
  for (const auto engine : engines()) {
    const IoWorkers made = make_io_workers(worker_options(file, engine));
    IoWorker& worker = *made.workers.front();
    std::vector<IoCompletion> ended;
    for (int round = 0; round < 3; ++round) {
      worker.wake();
      worker.wake();
      worker.wait(ended);
      std::jthread waiting([&] { worker.wait(ended); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      worker.wake();
    }
    CHECK(ended.empty());
  }
}

}  // namespace zeroth::offload::io_worker_test
