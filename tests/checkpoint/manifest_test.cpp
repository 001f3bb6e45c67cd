#include "checkpoint/manifest.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::manifest_test {
namespace {

Manifest example() {
  Manifest manifest{.step = 12,
                    .run_id = "r\"1",
                    .attempt = "3.1",
                    .written = 1'700'000'000,
                    .parent = Parent{8, 0x12},
                    .must_equal = {{"model.hidden", "192"}, {"data", "a\nb \xc3\xa9"}},
                    .may_change = {{"ranks", "2"}},
                    .counters = {{"micro_steps", int64_t{96}},
                                 {"scale", 65536.0},
                                 {"loss", 0.1},
                                 {"tiny", std::numeric_limits<double>::denorm_min()},
                                 {"zero", -0.0},
                                 {"best", std::numeric_limits<double>::infinity()},
                                 {"schedule", "cosine"},
                                 {"least", std::numeric_limits<int64_t>::min() + 1}},
                    .layout = {{"stage", "3"}}};
  const TensorChunk chunk{
      "w", "exp_avg", "F32", TensorSlice::between({5, 7}, {1, 2}, {4, 6}), {3, 11}};
  manifest.files.push_back({"config.json", 7, 0xabcdef01});
  manifest.files.push_back(
      {"zeroth/pieces-00000.safetensors", 1000, 0x1, {{chunk, 100, 0x2}, {chunk, 200, 0x3}}});
  return manifest;
}

// A manifest with another text in it, and the CRC that belongs to it.
std::string changed(const std::string& what, const std::string& by) {
  std::string text = to_string(example());
  const size_t at = text.find(what);
  REQUIRE(at != text.npos);
  text.replace(at, what.size(), by);
  text.resize(text.size() - 25);
  return text + "  \"crc32c\": \"" + format_crc(crc32c(text)) + "\"\n}\n";
}

std::string refused(const std::string& what, const std::string& by) {
  return message_of<CorruptCheckpoint>([&] { (void)parse_manifest(changed(what, by), "M"); });
}

}  // namespace

TEST_CASE("a manifest comes back as it was, numbers bit by bit") {
  const Manifest manifest = example();
  const std::string text = to_string(manifest);
  const Manifest again = parse_manifest(text, "M");
  CHECK(again == manifest);
  CHECK(std::signbit(std::get<double>(again.counters.at("zero"))));
  CHECK(to_string(again) == text);
  Manifest nan = manifest;
  nan.counters = {{"nan", std::numeric_limits<double>::quiet_NaN()}};
  CHECK(std::isnan(std::get<double>(parse_manifest(to_string(nan), "M").counters.at("nan"))));
  Manifest empty;
  CHECK(parse_manifest(to_string(empty), "M") == empty);
}

TEST_CASE("doubles come back bit by bit") {
  uint64_t bits = 88172645463325252;
  Manifest manifest;
  for (int i = 0; i < 2000; ++i) {
    bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isnan(value)) manifest.counters[std::to_string(i)] = value;
  }
  CHECK(parse_manifest(to_string(manifest), "M") == manifest);
}

TEST_CASE("a manifest is JSON whose last line but one is the CRC of all before it") {
  const std::string text = to_string(example());
  const auto tree = parse_trusted_json(text);
  CHECK(tree["format"] == "zeroth checkpoint");
  CHECK(tree["version"] == 1);
  CHECK(tree["files"][1]["pieces"][0]["tensor"] == "w");
  CHECK(tree["files"][1]["pieces"][0]["begin"][1] == 2);
  CHECK(tree["crc32c"] == format_crc(crc32c(std::string_view(text).substr(0, text.size() - 25))));
  CHECK(manifest_crc(text) == parse_crc(tree["crc32c"].get<std::string>()));
}

TEST_CASE("any byte that changes, and any end that is missing, is noticed") {
  const std::string text = to_string(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 4);
    CHECK_THROWS_AS((void)parse_manifest(other, "M"), CorruptCheckpoint);
    CHECK_THROWS_AS((void)parse_manifest(text.substr(0, i), "M"), CorruptCheckpoint);
  }
  CHECK(message_of<CorruptCheckpoint>([&] { (void)parse_manifest("", "M"); }) ==
        "M does not end with the crc32c of a manifest: it is cut short");
  std::string other = text;
  other[5] ^= 1;
  const std::string said = message_of<CorruptCheckpoint>([&] { (void)parse_manifest(other, "M"); });
  CHECK(said.starts_with("M: crc32c mismatch: stored " + format_crc(*manifest_crc(text)) +
                         ", computed "));
}

TEST_CASE("what is wrong in a manifest is told by file, key and value") {
  CHECK(refused("\"zeroth checkpoint\"", "\"torch\"") ==
        "M: format is \"torch\", expected \"zeroth checkpoint\"");
  CHECK(refused("\"version\": 1", "\"version\": 2") == "M: version is 2, this program reads 1");
  CHECK(refused("\"step\": 12", "\"step\": -1") ==
        "M: step is -1, expected an integer in 0..1000000000000000");
  CHECK(refused("\"step\": 12", "\"stop\": 12") == "M: step is missing");
  CHECK(refused("\"192\"", "192") == "M: must_equal.model.hidden is 192, expected a string");
  CHECK(refused("96", "[96]") == "M: counters.micro_steps is [96], expected a number or a string");
  CHECK(refused("\"inf\"", "\"info\"") ==
        "M: counters.best.double is \"info\", expected inf, -inf, nan or -nan");
  CHECK(refused("96", "18446744073709551615").starts_with("M: counters.micro_steps is 1844674"));
  CHECK(refused("\"00000012\"", "\"12\"") ==
        "M: parent.crc32c is \"12\", expected eight hexadecimal digits");
  CHECK(refused("\"may_change\"", "\"must_equal\"").find("must_equal") != std::string::npos);
  CHECK(refused("{\n", "{\n[") != "no exception");
}

TEST_CASE("what is wrong with files and pieces of a manifest is told") {
  for (const char* const name :
       {"../x", "/etc/passwd", "a/../../b", "", "a//b", "zeroth/manifest.json"}) {
    CHECK(refused("\"config.json\"", fmt::format("\"{}\"", name)) ==
          fmt::format("M: files[0].name is \"{}\", expected the name of a file within the "
                      "checkpoint",
                      name));
  }
  CHECK(refused("\"config.json\"", "\"zeroth/pieces-00000.safetensors\"") ==
        "M: files[1].name: duplicate file zeroth/pieces-00000.safetensors");
  CHECK(refused("\"F32\"", "\"F31\"") == "M: files[1].pieces[0]: unknown dtype F31");
  CHECK(refused("[4,6]", "[4,8]") ==
        "M: files[1].pieces[0]: its slice 2:8 is invalid for dimension 1 of size 7");
  CHECK(refused("[3,11]", "[3,13]") ==
        "M: files[1].pieces[0]: its range 3:13 is not within the 12 elements of its slice");
  CHECK(refused("[3,11]", "[3]") == "M: files[1].pieces[0].range is [3], expected two numbers");
  CHECK(refused("\"offset\":100", "\"offset\":990") ==
        "M: files[1].pieces[0] has 32 bytes at offset 990, but its file has 1000");
  CHECK(refused("[5,7]", "[1152921504606846976,1152921504606846976]").find("invalid shape [") !=
        std::string::npos);
}

TEST_CASE("what cannot be written is refused") {
  Manifest manifest = example();
  manifest.must_equal["path"] = "\xff";
  CHECK(message_of<Error>([&] { (void)to_string(manifest); }).find("is not UTF-8") !=
        std::string::npos);
  manifest = example();
  manifest.files[0].name = "../x";
  CHECK(message_of<Error>([&] {
          (void)to_string(manifest);
        }).starts_with("the manifest to be written: files[0].name is"));
}

TEST_CASE("a checkpoint's files are looked for with its manifest, and their sizes") {
  FaultyFileSystem file_system;
  const Manifest written = write_checkpoint(file_system, "c", {split("w", "m", {6}, {6}), {}});
  const ManifestFile found = read_manifest(file_system, "c");
  CHECK(found.manifest == written);
  CHECK(found.crc == *manifest_crc(to_string(written)));
  const auto said = [&] {
    return message_of<CorruptCheckpoint>([&] { (void)read_manifest(file_system, "c"); });
  };
  const std::string file = "c/zeroth/pieces-00000.safetensors";
  const std::string bytes = file_system.bytes_of(file);
  file_system.bytes_of(file).pop_back();
  CHECK(said() == fmt::format("/fake/{} has {} bytes, zeroth/manifest.json lists it with {}", file,
                              bytes.size() - 1, bytes.size()));
  file_system.remove_file(file);
  CHECK(said() == fmt::format("/fake/{} is missing, zeroth/manifest.json lists it with {} bytes",
                              file, bytes.size()));
  file_system.create_directory(file);
  CHECK(said() == "/fake/" + file + " is not a regular file");
  file_system.remove_file("c/zeroth/manifest.json");
  CHECK(said() == "/fake/c is not a complete checkpoint: it has no zeroth/manifest.json");
}

TEST_CASE("differences of two configurations are told by key, with both values") {
  const StringMap stored = {{"a", "1"}, {"b", "2"}, {"c", "3"}},
                  now = {{"a", "1"}, {"b", "4"}, {"d", "5"}};
  const auto found = differences(stored, now);
  REQUIRE(found.size() == 3);
  CHECK((found[0].key == "b" && found[0].stored == "2" && found[0].now == "4"));
  CHECK((found[1].key == "c" && found[1].stored == "3" && !found[1].now));
  CHECK((found[2].key == "d" && !found[2].stored && found[2].now == "5"));
  CHECK(differences(now, now).empty());
}

TEST_CASE("files of ranks sort by rank") {
  CHECK(chunk_file_name(1) == "zeroth/pieces-00001.safetensors");
  CHECK(chunk_file_name(123456) == "zeroth/pieces-123456.safetensors");
}

TEST_CASE("show_written: numbers of a manifest have limits, and fit each other") {
  CHECK(refused("\"written\": 1700000000", "\"written\": 4611686018427387903") ==
        "M: written is 4611686018427387903, expected an integer in 0..253402300799");
  CHECK(refused("\"step\": 12", "\"step\": 1000000000000001").starts_with("M: step is 1000"));
  CHECK(refused("{\"step\":8,", "{\"step\":9223372036854775807,").starts_with("M: parent.step is"));
  CHECK(refused("\"size\": 7", "\"size\": 1152921504606846977").starts_with("M: files[0].size is"));
  CHECK(refused("\"size\": 7", "\"size\": 1152921504606846976") ==
        "M: files[1].size: the files have more than 1152921504606846976 bytes together");
  CHECK(refused("\"micro_steps\":96", "\"applied_updates\":96") ==
        "M: counters.applied_updates is 96, expected an integer in 0..12, as step is 12");
  CHECK(refused("\"offset\":200", "\"offset\":131") ==
        "M: files[1].pieces[0] and files[1].pieces[1] have bytes in common");
  std::string deep = "\"";
  for (int i = 0; i < 17; ++i) deep += "d/";
  CHECK(refused("\"config.json\"", deep + "x\"").find("expected the name of a file within") !=
        std::string::npos);
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  CHECK(refused("[5,7]", many + "]") ==
        "M: files[1].pieces[0]: its tensor has 65 dimensions; at most 64 are supported");
}

TEST_CASE("show_written: a manifest of another step than its folder's name is refused") {
  FaultyFileSystem file_system;
  write_checkpoint(file_system, "step-8", {split("w", "m", {6}, {6})});
  CHECK(read_manifest(file_system, "step-8").manifest.step == 8);
  file_system.rename("step-8", "step-9");
  CHECK(message_of<CorruptCheckpoint>([&] { (void)read_manifest(file_system, "step-9"); }) ==
        "/fake/step-9/zeroth/manifest.json: step is 8, the name of its folder says 9");
  file_system.rename("step-9", ".old-step-9-1.1");
  CHECK_THROWS_AS((void)read_manifest(file_system, ".old-step-9-1.1"), CorruptCheckpoint);
  file_system.rename(".old-step-9-1.1", "kept");
  CHECK(read_manifest(file_system, "kept").manifest.step == 8);
}

}  // namespace zeroth::checkpoint::manifest_test
