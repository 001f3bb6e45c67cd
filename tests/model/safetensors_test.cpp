#include "model/safetensors.h"

#include <doctest/doctest.h>
#include <torch/types.h>

#include "base/error.h"
#include "model/safetensors_folder.h"
#include "model/safetensors_writer.h"
#include "tests/model/materialize.h"
#include "tests/model/temp_folder.h"

namespace zeroth::model {
namespace {

std::string with_header(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), 8);
  return text + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& content) {
  const TempFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_text(path, content);
  return message_of<Error>([&] { SafetensorsFile file(path); });
}

std::string entry(const std::string& name, const std::string& shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})", name, shape,
                     begin, end);
}

}  // namespace

TEST_CASE("what the writer writes is what the reader reads, in any order of writing") {
  const TempFolder folder;
  const auto path = folder.path() / "x.safetensors";
  const torch::Tensor a = torch::randn({2, 3}), b = torch::randn({4}), c = torch::randn({1, 0});
  SafetensorsWriter writer(path, torch::kFloat32, {{"a", {2, 3}}, {"b", {4}}, {"c", {1, 0}}});
  writer.write("b", b.to(torch::kFloat64));
  writer.write("a", a.t().contiguous().t());
  writer.write("c", c);
  writer.finish();
  auto read = load_tensors(path.string());
  CHECK(torch::equal(read["a"], a));
  CHECK(torch::equal(read["b"], b));
  CHECK(read["c"].sizes().vec() == Sizes{1, 0});
}

TEST_CASE("a writer that lacks a tensor does not finish") {
  const TempFolder folder;
  SafetensorsWriter writer(folder.path() / "x", torch::kBFloat16, {{"a", {2}}});
  CHECK_THROWS_AS(writer.finish(), InternalError);
  CHECK_THROWS_AS(writer.write("a", torch::zeros({3})), InternalError);
  CHECK_THROWS_AS(writer.write("b", torch::zeros({2})), InternalError);
}

TEST_CASE("a file that cannot be created is named with the reason") {
  const std::string said = message_of<Error>(
      [] { SafetensorsWriter writer("/nowhere/x.safetensors", torch::kFloat32, {}); });
  CHECK(said == "/nowhere/x.safetensors cannot be created: No such file or directory");
}

TEST_CASE("a full disk is an error") {
  if (!std::filesystem::exists("/dev/full")) return;
  const std::string said = message_of<Error>([] {
    SafetensorsWriter writer("/dev/full", torch::kFloat32, {{"a", {2}}});
  });
  CHECK(said.find("/dev/full cannot be written: ") == 0);
}

TEST_CASE("malformed files are refused with file and tensor") {
  const std::pair<std::string, std::string> cases[] = {
      {"abc", "is cut short: 3 bytes"},
      {std::string(8, '\x7f'), "is not a safetensors file"},
      {with_header("{}", 0).substr(0, 9), "is cut short: its header has 2 bytes"},
      {with_header("not json", 0), "no JSON header"},
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
  const TempFolder folder;
  const auto refused = [&] {
    return message_of<Error>([&] { SafetensorsFolder files(folder.path()); });
  };
  CHECK(refused().find("holds neither model.safetensors nor") != std::string::npos);
  const auto index = folder.path() / "model.safetensors.index.json";
  write_text(index, R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  const std::string one = with_header("{" + entry("a", "[2]", 0, 8) + "}", 8);
  write_text(folder.path() / "1.safetensors", one);
  CHECK(refused().find("2.safetensors cannot be opened") != std::string::npos);
  write_text(folder.path() / "2.safetensors", with_header("{}", 0));
  CHECK(refused().find("says that 2.safetensors holds tensor b") != std::string::npos);
  write_text(folder.path() / "2.safetensors", one);
  CHECK(refused().find("tensor a is in ") == 0);
  write_text(index, "[]");
  CHECK(refused().find("has no readable weight_map") != std::string::npos);
}

TEST_CASE("weights in another format are not taken for none") {
  const TempFolder folder;
  CHECK_FALSE(has_weights(folder.path()));
  write_text(folder.path() / "pytorch_model.bin", "x");
  CHECK_THROWS_AS(has_weights(folder.path()), Error);
}

}  // namespace zeroth::model
