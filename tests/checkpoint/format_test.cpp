// The format is what docs/checkpoint.md says: other programs read what Zeroth wrote, and the other
// way round.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "checkpoint/posix_file_system.h"
#include "checkpoint/verify.h"
#include "tests/checkpoint/read_whole.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::format_test {
namespace {

namespace fs = std::filesystem;

// The blocks of Python in the page.
std::string python_of_page() {
  const std::string page = zeroth::read_text(ZEROTH_SOURCE_DIR "/docs/checkpoint.md");
  const std::string fence = "```python\n";
  std::string code;
  for (size_t at = 0; (at = page.find(fence, at)) != page.npos;) {
    at += fence.size();
    code += page.substr(at, page.find("```", at) - at) + "\n";
  }
  return code;
}

// Of a whole state of the example in tests/checkpoint/fixtures.
std::vector<float> read_example(CheckpointReader& reader, const std::string& state) {
  const auto bytes = read_whole(reader, "w", state);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("a checkpoint that a script wrote by the page alone is read") {
  const fs::path directory = ZEROTH_SOURCE_DIR "/tests/checkpoint/fixtures/step-8";
  CheckpointReader reader = CheckpointReader::open(directory);
  std::vector<float> expected;
  for (int i = 0; i < 24; ++i) expected.push_back(static_cast<float>(i) + 0.5F);
  CHECK(read_example(reader, "master") == expected);
  CHECK(read_example(reader, "exp_avg") == expected);
  CHECK(read_whole(reader, "run", "step").size() == 4);
  CHECK(reader.unused().empty());
  const Counters& counters = reader.manifest().counters;
  CHECK(std::get<int64_t>(counters.at("samples")) == 64);
  CHECK(std::get<double>(counters.at("loss")) == 0.1);
  CHECK(std::isinf(std::get<double>(counters.at("best"))));
  const auto file_system = PosixFileSystem::find(directory);
  CHECK(verify(*file_system, "").errors.empty());
  CHECK(verify(*file_system, "").unlisted.empty());
}

TEST_CASE("the lines of Python in the page read what was saved, and check it") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) {
    MESSAGE("skipped: there is no python3");
    return;
  }
  const TempFolder directory;
  SingleRankGroup one;
  Saver saver(PosixFileSystem::make(directory / "c"), one, {.run_id = "run"});
  save(saver, one, 8, 3);
  const std::string code = python_of_page();
  REQUIRE(code.find("def read_pieces") != code.npos);
  REQUIRE(code.find("def manifest_is_whole") != code.npos);
  directory.write("page.py", code + R"(
folder = __import__("sys").argv[1]
assert manifest_is_whole(folder)
[(begin, end, part, numbers)] = read_pieces(folder, "a", "exp_avg")
assert (begin, end, part) == ([0, 0], [6, 4], [0, 24]), (begin, end, part)
assert list(numbers) == [i * 16 + 7 + 3000 for i in range(24)], numbers
assert list(read_pieces(folder, "a", "momentum")) == []
for file in json.load(open(folder + "/zeroth/manifest.json"))["files"]:
    data = open(folder + "/" + file["name"], "rb").read()
    assert file["crc32c"] == crc32c(data) and file["size"] == len(data)
    for piece in file["pieces"]:
        count = 4 * (piece["range"][1] - piece["range"][0])
        assert piece["crc32c"] == crc32c(data[piece["offset"] : piece["offset"] + count])
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["a|exp_avg|0:6,0:4|0:24"]["shape"] == [24]
)");
  const std::string python = "python3 -B " + (directory / "page.py").string() + " ";
  CHECK(std::system((python + (directory / "c/step-8").string()).c_str()) == 0);
  const std::string manifest = directory / "c/step-8/zeroth/manifest.json";
  std::string text = zeroth::read_text(fs::path(manifest));
  text[10] = static_cast<char>(text[10] ^ 1);
  zeroth::write_text(manifest, text);
  CHECK(std::system((python + (directory / "c/step-8").string() + " 2>/dev/null").c_str()) != 0);
}

}  // namespace zeroth::checkpoint::format_test
