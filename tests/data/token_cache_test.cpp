#include "data/samples/token_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/data/data_test_support.h"

namespace zeroth::data::token_cache_test {
namespace {

namespace fs = std::filesystem;

// A model's root with a tokenizer, a data file of pairs, and a cache.
struct Bench {
  Bench() {
    fs::copy(fixture("llama3"), root / "model");
    fs::create_directory(root / "cache");
    data = root.write("t.jsonl", text("fox"));
    load();
  }

  static std::string text(const std::string& word) {
    std::string lines;
    for (int i = 0; i < 100; ++i)
      lines +=
          R"({"prompt": "the )" + std::to_string(i) + R"(", "completion": " )" + word + "\"}\n";
    return lines;
  }

  void load() { tokenizer = Tokenizer::load(root / "model"); }

  DatasetOptions options() const {
    return {.path = data,
            .tokenizer = &*tokenizer,
            .seq_len = 64,
            .vocab_size = tokenizer->vocab_size() + extra_ids,
            .records = records,
            .model_dir = root / "model",
            .token_cache = {.enabled = true, .directory = root / "cache"}};
  }

  // Returns the names in the cache.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(root / "cache"))
      all.push_back(entry.path().filename().string());
    return all;
  }

  bool reuses() const {
    return open_tokens(options()).stats.token_cache.find("of an earlier run") != std::string::npos;
  }

  TempFolder root;
  fs::path data;
  std::optional<Tokenizer> tokenizer;
  RecordOptions records;
  int64_t extra_ids = 0;
};

std::vector<int64_t> all_ids(const StoredTokens& tokens) {
  std::vector<int64_t> all;
  std::visit([&](const auto& ids) { all.assign(ids.begin(), ids.end()); }, tokens.store->ids());
  return all;
}

}  // namespace

TEST_CASE(
    "A second run takes the tokens of the first one, with all that was known of the records") {
  const Bench bench;
  DatasetOptions uncached = bench.options();
  uncached.token_cache.enabled = false;
  const StoredTokens plain = open_tokens(uncached);
  CHECK(plain.stats.token_cache.empty());
  const StoredTokens first = open_tokens(bench.options());
  check_contains(first.stats.token_cache, "tokens are kept in");
  const StoredTokens second = open_tokens(bench.options());
  check_contains(second.stats.token_cache, "tokens are those of an earlier run, in");
  CHECK(all_ids(first) == all_ids(plain));
  CHECK(all_ids(second) == all_ids(plain));
  CHECK(second.stats.pairs);
  CHECK(second.stats.format == plain.stats.format);
  CHECK(second.stats.fields == plain.stats.fields);
  CHECK(second.stats.joint_example == plain.stats.joint_example);
  CHECK(bench.names().size() == 1);  // neither a lock nor a part
  const auto dataset = open_dataset(bench.options());
  CHECK(dataset->size() == 100);
  CHECK(dataset->sample_name(99) == bench.data.string() + ":100");
}

TEST_CASE("What is cut is no part of an entry") {
  const Bench bench;
  CHECK_FALSE(bench.reuses());
  DatasetOptions options = bench.options();
  options.seq_len = 5;
  const auto dataset = open_dataset(options);
  check_contains(dataset->stats().token_cache, "of an earlier run");
  CHECK(dataset->stats().truncated > 0);
  CHECK(bench.names().size() == 1);
}

TEST_CASE("An entry that is older than asked for is written anew") {
  const Bench bench;
  CHECK_FALSE(bench.reuses());
  DatasetOptions options = bench.options();
  options.token_cache.newer_than = static_cast<double>(std::time(nullptr)) - 3600;
  check_contains(open_tokens(options).stats.token_cache, "of an earlier run");
  options.token_cache.newer_than = static_cast<double>(std::time(nullptr)) - 60;
  const fs::path entry = bench.root / "cache" / bench.names().front();
  fs::last_write_time(entry, fs::last_write_time(entry) - std::chrono::hours(1));
  check_contains(open_tokens(options).stats.token_cache, "tokens are kept in");
}

TEST_CASE("Processes that start together share one entry, which one of them writes") {
  const Bench bench;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    const StoredTokens tokens = open_tokens(bench.options());
    ::_exit(tokens.store->num_sequences() == 100 ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(bench.names().size() == 1);
}

TEST_CASE("A process that is killed while it writes leaves nothing that is taken for an entry") {
  const Bench bench;
  const pid_t child = ::fork();
  if (child == 0) {
    DatasetOptions options = bench.options();
    options.on_read = [](int64_t done, int64_t) {
      if (done > 1000) ::raise(SIGKILL);
    };
    open_tokens(options);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(bench.names().size() == 2);  // the unlocked lock file, and what was written
  CHECK_FALSE(bench.reuses());
  CHECK(bench.names().size() == 1);
}

TEST_CASE("A failure while an entry is written leaves no part of it") {
  Bench bench;
  bench.data = bench.root.write("t.jsonl", Bench::text("fox") + "nothing\n");
  check_contains(error_of([&] { open_tokens(bench.options()); }), "t.jsonl:101:");
  for (const std::string& name : bench.names()) CHECK(name.ends_with(".lock"));
}

TEST_CASE("Who waits for the writer shows its progress, and takes its entry") {
  const Bench bench;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    DatasetOptions options = bench.options();
    bool is_ready = false;
    options.on_read = [&](int64_t done, int64_t) {
      if (done < 1000 || is_ready) return;
      is_ready = true;
      (void)!::write(ready[1], "x", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    };
    open_tokens(options);
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  DatasetOptions options = bench.options();
  int64_t total = 0;
  options.on_read = [&](int64_t, int64_t bytes) { total = bytes; };
  check_contains(open_tokens(options).stats.token_cache, "of an earlier run");
  CHECK(total == static_cast<int64_t>(fs::file_size(bench.data)));
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("A cache that others can write to is not used") {
  const Bench bench;
  fs::permissions(bench.root / "cache", fs::perms::all);
  check_contains(error_of([&] { open_tokens(bench.options()); }),
                 "cache can be written by other users than this one and the data's owner");
}

TEST_CASE("A new cache is written by its user alone, whatever the umask") {
  const Bench bench;
  DatasetOptions options = bench.options();
  options.token_cache.directory = bench.root / "own";
  const mode_t before = ::umask(0002);
  const StoredTokens tokens = open_tokens(options);
  ::umask(before);
  check_contains(tokens.stats.token_cache, "tokens are kept in");
  struct stat status {};
  REQUIRE(::stat((bench.root / "own").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0755);
}

TEST_CASE("A link in place of an entry is not followed") {
  const Bench bench;
  CHECK_FALSE(bench.reuses());
  const fs::path entry = bench.root / "cache" / bench.names().front();
  fs::rename(entry, bench.root / "elsewhere");
  fs::create_directory_symlink(bench.root / "elsewhere", entry);
  CHECK_THROWS_AS(open_tokens(bench.options()), Error);
}

TEST_CASE("A damaged entry is an Error that says what to do") {
  const Bench bench;
  CHECK_FALSE(bench.reuses());
  const fs::path entry = bench.root / "cache" / bench.names().front();
  fs::resize_file(entry / "tokens.mask", 1);
  check_contains(error_of([&] { open_tokens(bench.options()); }), ": remove this folder");
}

TEST_CASE("By default a small file is not kept, and a larger one beside itself") {
  Bench bench;
  DatasetOptions options = bench.options();
  options.token_cache.directory.clear();
  CHECK(open_tokens(options).stats.token_cache.empty());
  CHECK_FALSE(fs::exists(bench.root / ".zeroth-tokens"));
  std::string many;
  while (many.size() < size_t{1} << 20) many += Bench::text("fox");
  bench.root.write("t.jsonl", many);
  check_contains(open_tokens(options).stats.token_cache,
                 "kept in " + (fs::canonical(bench.root.path()) / ".zeroth-tokens").string());
  fs::remove_all(bench.root / ".zeroth-tokens");
  bench.root.write(".zeroth-tokens", "a file");
  const StoredTokens tokens = open_tokens(options);
  CHECK(tokens.store->num_sequences() > 100);
  check_contains(tokens.stats.token_cache, "the tokens are not kept for the next run: ");
}

}  // namespace zeroth::data::token_cache_test
