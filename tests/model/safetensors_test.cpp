#include "model/hf/safetensors.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/error.h"
#include "tests/model/safetensors_text.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::safetensors_test {
namespace {

std::string refusal(const std::string& content) {
  const TempFolder directory;
  const auto path = directory.path() / "x.safetensors";
  write_text(path, content);
  return message_of<Error>([&] { SafetensorsFile file(path); });
}

}  // namespace

TEST_CASE("a header gives dtype, shape and bytes of each tensor") {
  const TempFolder directory;
  const auto path = directory.path() / "x.safetensors";
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "[1,2]", 0, 8) +
                             "," + entry("b", "[]", 8, 12) + "}";
  write_text(path, with_header(header, 12));
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 2);
  const StoredTensor& a = file.tensors().at("a");
  CHECK(a.dtype == "F32");
  CHECK(a.shape == std::vector<int64_t>{1, 2});
  CHECK(file.bytes(a).size() == 8);
  CHECK(file.bytes(file.tensors().at("b")).data() == file.bytes(a).data() + 8);
}

TEST_CASE("malformed files are refused with file and tensor") {
  const std::pair<std::string, std::string> cases[] = {
      {"abc", "is cut short: 3 bytes"},
      {std::string(8, '\x7f'), "is not a safetensors file"},
      {with_header("{}", 0).substr(0, 9), "is cut short: its header has 2 bytes"},
      {with_header("not json", 0),
       "x.safetensors (header):1:2: not JSON: unexpected 'not', expected a value"},
      {with_header("[]", 0),
       "x.safetensors is not a safetensors file: its header is not an object"},
      {with_header(std::string(400'000, '['), 0), "nested deeper than 128 levels"},
      {with_header("{" + entry("a", "[2]", 0, 8) + "," + entry("a", "[2]", 0, 8) + "}", 8),
       "duplicate key a in one object"},
      {with_header("{" + entry("a", "[4294967296,4294967296,4]", 0, 8) + "}", 8),
       "need more than any file has"},
      {with_header("{" + entry("a", "[1e300]", 0, 8) + "}", 8), "shape[0] is 1e+300, expected"},
      {with_header(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,18446744073709551615]}})",
                   0),
       "data_offsets[1] is 18446744073709551615, expected an integer"},
      {with_header("{" + entry("x\\u001b[2J" + std::string(9000, 'y'), "[3]", 0, 8) + "}", 8),
       "tensor x\\u001b[2Jyyy"},
      {with_header("{" + entry("a", "[2]", 0, 8) + "}", 7), "tensor a ends at byte"},
      {with_header("{" + entry("a", "[2]", 0, 8) + "}", 9), "its header describes"},
      {with_header("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 4, 12) + "}", 12),
       "tensor b occupies bytes"},
      {with_header("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 12, 20) + "}", 20),
       "tensor b occupies bytes"},
      {with_header("{" + entry("a", "[3]", 0, 8) + "}", 8),
       "tensor a has 8 bytes, its shape and dtype F32 need 12"},
      {with_header(R"({"a":{"dtype":"F32"}})", 0), "entry for tensor a is malformed"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
       "entry for tensor a is malformed"},
      {with_header("{" + entry("a", "[-2]", 0, 8) + "}", 8), "entry for tensor a is malformed"},
  };
  for (const auto& [content, message] : cases) {
    const std::string said = refusal(content);
    CHECK_MESSAGE(said.find(message) != std::string::npos, message << " | " << said);
  }
}

TEST_CASE("a missing shard, a wrong index and a tensor in two shards are named") {
  const TempFolder directory;
  const auto refused = [&] {
    return message_of<Error>([&] { SafetensorsDirectory files(directory.path()); });
  };
  CHECK(refused().find("holds neither model.safetensors nor") != std::string::npos);
  const auto index = directory.path() / "model.safetensors.index.json";
  write_text(index, R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  const std::string one = with_header("{" + entry("a", "[2]", 0, 8) + "}", 8);
  write_text(directory.path() / "1.safetensors", one);
  CHECK(refused().find("cannot open ") == 0);
  CHECK(refused().find("2.safetensors: No such file") != std::string::npos);
  write_text(directory.path() / "2.safetensors", with_header("{}", 0));
  CHECK(refused().find("says that 2.safetensors holds tensor b") != std::string::npos);
  write_text(directory.path() / "2.safetensors", one);
  CHECK(refused().find("tensor a is in ") == 0);
  write_text(index, "[]");
  CHECK(refused().find("has no readable weight_map") != std::string::npos);
}

TEST_CASE("weights are read through links that lead out of the folder, whole or in shards") {
  const TempFolder elsewhere, directory, sharded;
  const std::string header = "{" + entry("a", "[2]", 0, 8) + "}";
  const auto blob = elsewhere.write("blob", with_header(header, 0) + "12345678");
  const auto link = elsewhere / "link";
  std::filesystem::create_symlink(blob, link);
  std::filesystem::create_symlink(link, directory / "model.safetensors");
  std::filesystem::create_symlink(
      elsewhere.write("index", R"({"weight_map": {"a": "1.safetensors"}})"),
      sharded / "model.safetensors.index.json");
  std::filesystem::create_symlink(blob, sharded / "1.safetensors");
  for (const TempFolder* const of : {&directory, &sharded}) {
    CHECK(has_weights(of->path()));
    const SafetensorsDirectory files(of->path());
    const auto& [file, tensor] = files.entries().at("a");
    const auto bytes = file->bytes(*tensor);
    CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == "12345678");
  }
}

TEST_CASE("weights in another format are not taken for none") {
  const TempFolder directory;
  CHECK_FALSE(has_weights(directory.path()));
  write_text(directory.path() / "pytorch_model.bin", "x");
  CHECK_THROWS_AS(has_weights(directory.path()), Error);
}

TEST_CASE("an index that names files elsewhere, or anything but files, is refused by the tensor") {
  const TempFolder directory;
  const auto path = directory.path() / "model.safetensors.index.json";
  const auto refused = [&](const std::string& file) {
    write_text(path, "{\"weight_map\": {\"a\": " + file + "}}");
    return message_of<Error>([&] { SafetensorsDirectory files(directory.path()); });
  };
  for (const char* const file :
       {R"("../x")", R"("/etc/passwd")", R"("..")", R"("")", R"("a\u0000")"}) {
    CHECK(refused(file).find("weight_map.a is ") != std::string::npos);
    CHECK(refused(file).find("expected the name of a file in this folder") != std::string::npos);
  }
  CHECK(refused("5").find("weight_map.a is 5, expected a string") != std::string::npos);
  write_text(path, std::string(1'000'000, '['));
  CHECK(message_of<Error>([&] {
          SafetensorsDirectory files(directory.path());
        }).find("index.json:1:129: nested deeper") != std::string::npos);
}

}  // namespace zeroth::model::safetensors_test
