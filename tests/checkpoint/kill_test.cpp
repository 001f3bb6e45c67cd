// Processes that write a checkpoint of two ranks to a real disk are killed at every call of theirs.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "checkpoint/commit.h"
#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/checkpoint/thread_rank_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::kill_test {
namespace {

// Counts the calls of this process that change or sync something, and kills it at one of them.
class KillingDisk : public FileSystem {
 public:
  KillingDisk(const std::filesystem::path& path, int64_t last, int64_t* calls)
      : file_system_(PosixFileSystem::make(path)), last_(last), calls_(calls) {}

  const std::filesystem::path& path() const override { return file_system_->path(); }
  std::unique_ptr<WritableFile> create(const std::string& name, int64_t size) override {
    return std::make_unique<File>(*this, before()->create(name, size));
  }
  std::unique_ptr<WritableFile> open_shared(const std::string& name) override {
    return std::make_unique<File>(*this, file_system_->open_shared(name));
  }
  std::unique_ptr<RandomAccessFile> open(const std::string& name) override {
    return file_system_->open(name);
  }
  void create_directory(const std::string& name) override { before()->create_directory(name); }
  std::vector<DirectoryEntry> list(const std::string& directory) override {
    return file_system_->list(directory);
  }
  void rename(const std::string& from, const std::string& to) override {
    before()->rename(from, to);
  }
  bool exchange(const std::string& one, const std::string& other) override {
    return before()->exchange(one, other);
  }
  void remove_file(const std::string& name) override { before()->remove_file(name); }
  void remove_directory(const std::string& name) override { before()->remove_directory(name); }
  void sync_directory(const std::string& name) override { before()->sync_directory(name); }
  void sync_file(const std::string& name) override { before()->sync_file(name); }
  int64_t free_bytes() override { return file_system_->free_bytes(); }

 private:
  class File : public WritableFile {
   public:
    File(KillingDisk& file_system, std::unique_ptr<WritableFile> file)
        : file_system_(file_system), file_(std::move(file)) {}
    // Killed in the middle of the bytes: half of them are written.
    size_t write(std::span<const std::byte> bytes, int64_t offset) override {
      if (file_system_.is_last()) (void)file_->write(bytes.first((bytes.size() + 1) / 2), offset);
      file_system_.before();
      return file_->write(bytes, offset);
    }
    void sync() override {
      file_system_.before();
      file_->sync();
    }
    void close() override {
      file_system_.before();
      file_->close();
    }

   private:
    KillingDisk& file_system_;
    std::unique_ptr<WritableFile> file_;
  };

  bool is_last() const { return *calls_ + 1 == last_; }
  FileSystem* before() {
    if (is_last()) ::raise(SIGKILL);
    ++*calls_;
    return file_system_.get();
  }

  std::unique_ptr<PosixFileSystem> file_system_;
  int64_t last_;
  int64_t* calls_;
};

// Two processes that are connected.
class ForkedRank : public RankGroup {
 public:
  ForkedRank(int rank, int socket) : rank_(rank), socket_(socket) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::vector<std::string> gather(const std::string& mine) override {
    const uint64_t size = mine.size();
    send(&size, sizeof(size));
    send(mine.data(), mine.size());
    uint64_t other_size = 0;
    receive(&other_size, sizeof(other_size));
    std::string other(other_size, '\0');
    receive(other.data(), other.size());
    return rank_ == 0 ? std::vector{mine, other} : std::vector{other, mine};
  }

 private:
  void send(const void* data, size_t size) {
    if (::send(socket_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) lost();
  }
  void receive(void* data, size_t size) {
    if (size > 0 && ::recv(socket_, data, size, MSG_WAITALL) != static_cast<ssize_t>(size)) lost();
  }
  [[noreturn]] void lost() const { throw Error("rank {} is lost", 1 - rank_); }

  int rank_, socket_;
};

struct Outcome {
  std::array<int, 2> status{};     // 0: saved; 1: an Error; -9: killed
  std::array<int64_t, 2> calls{};  // of each rank
};

// Saves once with two processes of which one is killed at a call of its own; 0: none is.
Outcome save_forked(const std::filesystem::path& path, int64_t step, int64_t salt, int victim,
                    int64_t call) {
  auto* const calls = static_cast<int64_t*>(::mmap(
      nullptr, 2 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(calls != MAP_FAILED);
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  std::array<pid_t, 2> children{};
  for (size_t rank = 0; rank < 2; ++rank) {
    children[rank] = ::fork();
    if (children[rank] != 0) continue;
    ::close(ends[1 - rank]);
    try {
      const auto file_system = std::make_shared<KillingDisk>(
          path, static_cast<int>(rank) == victim ? call : 0, &calls[rank]);
      ForkedRank ranks(static_cast<int>(rank), ends[rank]);
      Saver saver(file_system, ranks, {.run_id = "run"});
      save(saver, ranks, step, salt);
    } catch (const Error&) {
      ::_exit(1);
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  Outcome outcome;
  for (size_t rank = 0; rank < 2; ++rank) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    outcome.status[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    outcome.calls[rank] = calls[rank];
  }
  ::munmap(calls, 2 * sizeof(int64_t));
  return outcome;
}

void prepare(const std::filesystem::path& path) {
  SingleRankGroup one;
  Saver saver(PosixFileSystem::make(path), one, {.run_id = "run"});
  save(saver, one, 4, 1);
  save(saver, one, 8, 2);
}

}  // namespace

TEST_CASE("either of two writing processes may be killed at any call of its own") {
  int64_t kills = 0;
  for (const int64_t step : {12, 8}) {  // a new one, and one that is there
    const TempFolder counted;
    prepare(counted / "c");
    const Outcome whole = save_forked(counted / "c", step, 3, -1, 0);
    REQUIRE(whole.status == std::array<int, 2>{0, 0});
    CHECK(whole.calls[0] > 25);
    CHECK(whole.calls[1] > 6);
    for (const int victim : {0, 1}) {
      for (int64_t call = 1; call <= whole.calls[static_cast<size_t>(victim)]; ++call) {
        const TempFolder directory;
        prepare(directory / "c");
        const Outcome outcome = save_forked(directory / "c", step, 3, victim, call);
        CHECK(outcome.status[static_cast<size_t>(victim)] == -SIGKILL);
        CHECK(outcome.status[static_cast<size_t>(1 - victim)] == 1);
        const std::shared_ptr<FileSystem> file_system = PosixFileSystem::find(directory / "c");
        const int64_t loaded = load_newest(file_system);
        CHECK((loaded == 2 || (loaded == 3 && victim == 0)));
        SingleRankGroup one;
        Saver saver(file_system, one, {.run_id = "run"});
        save(saver, one, step + 1, 4);
        CHECK(load_newest(file_system) == 4);
        CHECK(temporary_names(*file_system).empty());
        ++kills;
      }
    }
  }
  MESSAGE(kills, " kills");
}

TEST_CASE("two runs that save into one folder at once do not mix") {
  // Each believes that it is alone; the one that came first is told that it is not.
  const TempFolder directory;
  SingleRankGroup one;
  Saver first(PosixFileSystem::make(directory.path()), one, {.run_id = "first"});
  save(first, one, 8, 1);
  Saver second(PosixFileSystem::make(directory.path()), one, {.run_id = "second"});
  save(second, one, 8, 2);
  CHECK(message_of<Error>([&] { save(first, one, 12, 3); }).find("now belongs to another run") !=
        std::string::npos);
  CHECK(load_newest(PosixFileSystem::find(directory.path())) == 2);
}

}  // namespace zeroth::checkpoint::kill_test
