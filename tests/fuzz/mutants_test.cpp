#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text/printable.h"
#include "model/hf/families/family.h"
#include "model/spec.h"
#include "tests/fuzz/mutant.h"
#include "tests/fuzz/readers.h"
#include "tests/support/temp_folder.h"

namespace zeroth::fuzz::mutants_test {
namespace {

namespace fs = std::filesystem;

constexpr std::clock_t kMaxTime = 2 * CLOCKS_PER_SEC;  // of the processor, for one input
constexpr uint64_t kMutants = 2000;                    // of each kind
constexpr int64_t kMaxKib = 500'000;                   // above what the program has at its start

// The most memory that this process has held so far.
int64_t peak_kib() {
  constexpr std::string_view kTitle = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kTitle)) return std::stoll(line.substr(kTitle.size()));
  throw std::runtime_error("no VmHWM");
}

const int64_t kib_at_start = peak_kib();

// A config.json of each family, and of variants.
std::vector<fs::path> model_configs() {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(ZEROTH_SOURCE_DIR) / "tests/model/fixtures"))
    if (fs::exists(entry.path() / "config.json")) files.push_back(entry.path() / "config.json");
  return files;
}

// In the order of their names.
std::vector<fs::path> corpus(const Reader& reader) {
  std::vector<fs::path> files;
  if (std::string_view(reader.name) == "model_config") files = model_configs();
  for (const auto& entry :
       fs::directory_iterator(fs::path(ZEROTH_SOURCE_DIR) / "tests/fuzz/corpus" / reader.name)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void expect_kept(const Reader& reader, std::string_view bytes, const std::string& name) {
  INFO(reader.name << ": " << name);
  const std::clock_t start = std::clock();
  std::string finding;
  try {
    check(reader, bytes);
  } catch (const Finding& found) {
    finding = found.what();
  }
  CHECK(finding == "");
  CHECK(std::clock() - start < kMaxTime);
  CHECK(peak_kib() - kib_at_start < kMaxKib);
}

}  // namespace

TEST_CASE("every file of the corpus is read or refused in our words, in time and little memory") {
  for (const Reader& reader : readers()) {
    const auto files = corpus(reader);
    CHECK_MESSAGE(!files.empty(), reader.name);
    for (const fs::path& file : files) expect_kept(reader, read_text(file), file.filename());
  }
}

TEST_CASE("each reader understands its files named good") {
  for (const Reader& reader : readers()) {
    bool any = false;
    for (const fs::path& file : corpus(reader)) {
      if (!file.filename().string().starts_with("good")) continue;
      any = true;
      INFO(file.string());
      CHECK_NOTHROW(reader.read(read_text(file)));
    }
    CHECK_MESSAGE(any, reader.name);
  }
}

TEST_CASE(
    "2,000 mutants of each kind are read or refused in our words, in time and little memory") {
  for (const Reader& reader : readers()) {
    std::vector<std::string> originals;
    for (const fs::path& file : corpus(reader)) originals.push_back(read_text(file));
    REQUIRE(!originals.empty());
    for (uint64_t seed = 0; seed < kMutants; ++seed) {
      expect_kept(reader, mutant(originals, seed), "mutant " + std::to_string(seed));
      const auto object = json_mutant(originals, seed);
      if (object) expect_kept(reader, *object, "JSON mutant " + std::to_string(seed));
    }
  }
}

TEST_CASE("the config.json of every family is among the files that are changed") {
  std::set<std::string> families;
  for (const fs::path& file : model_configs()) {
    INFO(file.string());
    families.insert(model::parse_model_spec(read_text(file), "config.json").family);
  }
  for (const std::string_view family : model::family_names())
    if (model::find_family(family) != nullptr)
      CHECK_MESSAGE(families.contains(std::string(family)), family);
}

TEST_CASE("a mutant of JSON is JSON, and mostly unlike its original") {
  const std::vector<std::string> originals = {R"({"a":[1,2,{"b":null}],"c":{"d":1.5}})",
                                              R"({"e":"x"})"};
  int changed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto text = json_mutant(originals, seed);
    REQUIRE(text);
    CHECK(text == json_mutant(originals, seed));
    CHECK(nlohmann::json::accept(*text));
    changed += *text != originals[0] && *text != originals[1] ? 1 : 0;
  }
  CHECK(changed > 80);
  CHECK_FALSE(json_mutant({"[1]"}, 0));
  CHECK_FALSE(json_mutant({"{"}, 0));
}

TEST_CASE("a mutant is the same in every run, and mostly unlike its original") {
  const std::vector<std::string> originals = {"{\"a\": [1, 2, 3], \"b\": \"text\"}"};
  int changed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CHECK(mutant(originals, seed) == mutant(originals, seed));
    changed += mutant(originals, seed) != originals[0] ? 1 : 0;
  }
  CHECK(changed > 80);
}

TEST_CASE("a reader that breaks a promise is found out") {
  const Reader foreign{"x", [](std::string_view) { throw Error("[json.exception.x] std::y"); }};
  CHECK_THROWS_AS(check(foreign, ""), Finding);
  const Reader silent{"x", [](std::string_view) { throw Error(std::string()); }};
  CHECK_THROWS_AS(check(silent, ""), Finding);
  const Reader broken{"x", [](std::string_view) { throw InternalError("a bug"); }};
  CHECK_THROWS_AS(check(broken, ""), Finding);
  const Reader memory{"x", [](std::string_view) { throw std::bad_alloc(); }};
  CHECK_THROWS_AS(check(memory, ""), Finding);
  const Reader endless{"x", [](std::string_view) { throw Error(std::string(100'000, 'x')); }};
  CHECK_THROWS_AS(check(endless, ""), Finding);
  const Reader good{"x", [](std::string_view) { throw Error("no\x1b[31m file"); }};
  CHECK_NOTHROW(check(good, ""));
}

}  // namespace zeroth::fuzz::mutants_test
