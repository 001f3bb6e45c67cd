#include "data/samples/token_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/memory_file.h"
#include "base/machine/process_limits.h"
#include "base/machine/random_bytes.h"
#include "data/samples/record_reader.h"

namespace zeroth::data {

// The facts of an entry.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RecordFacts, pairs, chats, documents, blank_lines, format,
                                   fields, joint_example, named_fields, bad_records,
                                   first_bad_records, turns, turns_without_end, joined_parts,
                                   with_special_tokens, merged_boundaries, missing_fields,
                                   own_special_tokens)

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kDefaultDirectory[] = ".zeroth-tokens";
constexpr int64_t kMinCachedBytes = int64_t{1} << 20;  // smaller files are read at once
constexpr char kFactsFile[] = "facts.json";
constexpr char kIdsFile[] = "tokens.bin";
constexpr std::chrono::minutes kMaxWait{10};  // without progress of the process that writes
constexpr std::chrono::milliseconds kPoll{100};

// Keeps the ids in memory files, which end with this process.
StoredTokens read_into_memory(const DatasetOptions& options) {
  const auto create = [] {
    return FileDescriptor(::fcntl(MemoryFile::create("zeroth-tokens").get(), F_DUPFD_CLOEXEC, 0));
  };
  TokenStoreWriter writer(
      token_type_for(options.vocab_size), options.path.string(),
      {.ids = create(), .index = create(), .mask = create(), .lines = create()});
  StoredTokens tokens;
  static_cast<RecordFacts&>(tokens.stats) = read_tokens(options, writer);
  writer.finish();
  const auto& files = writer.files();
  tokens.store = std::make_shared<const TokenStore>(
      TokenStoreFiles<std::optional<fs::path>>{.ids = proc_fd_path(files.ids.get()),
                                               .index = proc_fd_path(files.index.get()),
                                               .mask = proc_fd_path(files.mask.get()),
                                               .lines = proc_fd_path(files.lines.get())});
  return tokens;
}

// A cache that cannot be used.
class CacheError : public Error {
 public:
  using Error::Error;
};

// What the process that writes an entry has done. It is in the lock file.
struct WriteProgress {
  int64_t pid = 0, done = 0, bytes = 0;
  bool operator==(const WriteProgress&) const = default;
};

class TokenCache {
 public:
  // Throws a CacheError if its directory cannot be used.
  TokenCache(const DatasetOptions& options, const fs::path& directory);

  // Returns the ids of the entry, which this process or another one writes if it is missing.
  StoredTokens open();

 private:
  std::optional<StoredTokens> find() const;
  bool is_trusted(uid_t owner, mode_t mode) const;
  bool is_outdated(const struct stat& entry) const;
  void write();
  void lock();
  void publish(const std::string& temporary);
  FileDescriptor create_file(const Directory& entry, const std::string& name) const;
  std::string name() const { return (directory_.path() / key_).string(); }

  DatasetOptions options_;
  Directory directory_;
  std::string key_;
  uid_t data_owner_ = 0;
  FileDescriptor lock_;
};

// A new directory is this user's to write to, whatever the umask.
Directory open_directory(const fs::path& path) {
  try {
    Directory directory = Directory::create(path);
    if (directory.num_created() > 0) (void)::fchmod(directory.get(), 0755);
    return directory;
  } catch (const Error& e) {
    throw CacheError("{}", e.what());
  }
}

TokenCache::TokenCache(const DatasetOptions& options, const fs::path& directory)
    : options_(options), directory_(open_directory(directory)), key_(token_cache_key(options)) {
  struct stat data {};
  struct stat root {};
  if (::stat(options.path.c_str(), &data) != 0 || ::fstat(directory_.get(), &root) != 0)
    throw CacheError("{}: {}", directory.string(), system_reason(errno));
  data_owner_ = data.st_uid;
  if (!is_trusted(root.st_uid, root.st_mode)) {
    throw CacheError("{} can be written by other users than this one and the data's owner",
                     directory.string());
  }
}

bool TokenCache::is_trusted(uid_t owner, mode_t mode) const {
  return (owner == ::geteuid() || owner == data_owner_) && (mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool TokenCache::is_outdated(const struct stat& entry) const {
  const double written =
      static_cast<double>(entry.st_mtim.tv_sec) + 1e-9 * static_cast<double>(entry.st_mtim.tv_nsec);
  return written < options_.token_cache.newer_than;
}

std::optional<StoredTokens> TokenCache::find() const {
  const std::optional<Directory> entry = directory_.open_subdirectory(key_);
  if (!entry) return std::nullopt;
  struct stat status {};
  if (::fstat(entry->get(), &status) != 0 || !is_trusted(status.st_uid, status.st_mode))
    throw CacheError("{} belongs to another user than this one and the data's owner", name());
  if (is_outdated(status)) {
    directory_.remove(key_, *entry);
    return std::nullopt;
  }
  const fs::path directory = proc_fd_path(entry->get());
  StoredTokens tokens;
  try {
    const json facts =
        parse_json(read_file(directory / kFactsFile, kConfigLimits.bytes), {.name = kFactsFile});
    static_cast<RecordFacts&>(tokens.stats) = facts.get<RecordFacts>();
    tokens.store = std::make_shared<const TokenStore>(token_store_paths(directory / kIdsFile));
  } catch (const std::exception& e) {  // of nlohmann, too
    throw Error("{} is damaged ({}): remove this folder", name(), e.what());
  }
  return tokens;
}

StoredTokens TokenCache::open() {
  std::optional<StoredTokens> found = find();
  bool written = false;
  if (!found) {
    lock();
    found = find();  // another process may have written it
    if (!found) {
      write();
      written = true;
      found = find();
    }
    lock_.close();
  }
  if (!found) throw CacheError("{} was removed", name());
  found->stats.token_cache = fmt::format(
      "{} {}", written ? "tokens are kept in" : "tokens are those of an earlier run, in", name());
  return std::move(*found);
}

// Waits until this process has the lock.
void TokenCache::lock() {
  const std::string file = key_ + ".lock";
  lock_ = FileDescriptor(
      ::openat(directory_.get(), file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (lock_.get() < 0) throw CacheError("{}.lock: {}", name(), system_reason(errno));
  WriteProgress seen;
  auto last_change = std::chrono::steady_clock::now();
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      throw CacheError("{}.lock: {}", name(), system_reason(errno));
    std::this_thread::sleep_for(kPoll);
    WriteProgress now;
    if (::pread(lock_.get(), &now, sizeof(now), 0) != sizeof(now)) now = {};
    if (now != seen) {
      seen = now;
      last_change = std::chrono::steady_clock::now();
      if (options_.on_read && now.bytes > 0) options_.on_read(now.done, now.bytes);
    } else if (std::chrono::steady_clock::now() - last_change > kMaxWait) {
      throw Error(
          "{}: process {}, which writes the tokens of {}, has made no progress for {} minutes: "
          "end it, or choose another folder by --token-cache",
          name(), now.pid, options_.path.string(), kMaxWait.count());
    }
  }
}

FileDescriptor TokenCache::create_file(const Directory& entry, const std::string& file) const {
  FileDescriptor fd(::openat(entry.get(), file.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (fd.get() < 0) throw CacheError("{}/{}: {}", name(), file, system_reason(errno));
  return fd;
}

void TokenCache::write() {
  // What killed processes have left: the lock says that none of them is alive.
  const std::string prefix = key_ + ".part-";
  for (const std::string& left : directory_.names()) {
    const auto part = left.starts_with(prefix) ? directory_.open_subdirectory(left) : std::nullopt;
    if (part) directory_.remove(left, *part);
  }
  const std::string temporary = prefix + random_hex(8);
  if (::mkdirat(directory_.get(), temporary.c_str(), 0755) != 0)
    throw CacheError("{}: {}", name(), system_reason(errno));
  const std::optional<Directory> entry = directory_.open_subdirectory(temporary);
  if (!entry) throw CacheError("{} was removed while it was written", name());
  try {
    WriteProgress progress{.pid = ::getpid(), .done = 0, .bytes = 0};
    DatasetOptions options = options_;
    auto reported = std::chrono::steady_clock::time_point();
    options.on_read = [&](int64_t done, int64_t bytes) {
      if (options_.on_read) options_.on_read(done, bytes);
      const auto now = std::chrono::steady_clock::now();
      if (now - reported < kPoll) return;
      reported = now;
      progress.done = done;
      progress.bytes = bytes;
      (void)::pwrite(lock_.get(), &progress, sizeof(progress), 0);
    };
    TokenStoreWriter writer(token_type_for(options.vocab_size), name(),
                            {.ids = create_file(*entry, kIdsFile),
                             .index = create_file(*entry, "tokens.idx"),
                             .mask = create_file(*entry, "tokens.mask"),
                             .lines = create_file(*entry, "tokens.lines")});
    const json facts = read_tokens(options, writer);
    writer.finish();
    const FileDescriptor facts_file = create_file(*entry, kFactsFile);
    FileAppender appender(facts_file.get(), name());
    appender.append(to_line(facts));
    appender.flush();
    if (::fsync(facts_file.get()) != 0 || ::fsync(entry->get()) != 0)
      throw CacheError("{}: {}", name(), system_reason(errno));
    publish(temporary);
  } catch (const WriteError& e) {
    directory_.remove(temporary, *entry);
    throw CacheError("{}", e.what());
  } catch (...) {
    directory_.remove(temporary, *entry);
    throw;
  }
}

void TokenCache::publish(const std::string& temporary) {
  if (::renameat(directory_.get(), temporary.c_str(), directory_.get(), key_.c_str()) != 0)
    throw CacheError("{}: {}", name(), system_reason(errno));
  ::unlinkat(directory_.get(), (key_ + ".lock").c_str(), 0);
  ::fsync(directory_.get());
}

bool is_small(const fs::path& path) {
  std::error_code unknown;
  const auto size = fs::file_size(path, unknown);
  return !unknown && static_cast<int64_t>(size) < kMinCachedBytes;
}

}  // namespace

StoredTokens open_tokens(const DatasetOptions& options) {
  const TokenCacheOptions& cache = options.token_cache;
  const bool named = !cache.directory.empty();
  if (!cache.enabled || options.tokenizer == nullptr || (!named && is_small(options.path)))
    return read_into_memory(options);
  try {
    return TokenCache(options, named ? cache.directory
                                     : fs::absolute(options.path).parent_path() / kDefaultDirectory)
        .open();
  } catch (const CacheError& e) {
    if (named) throw;
    StoredTokens tokens = read_into_memory(options);
    tokens.stats.token_cache = fmt::format(
        "the tokens are not kept for the next run: {}; --token-cache chooses another folder",
        e.what());
    return tokens;
  }
}

}  // namespace zeroth::data
