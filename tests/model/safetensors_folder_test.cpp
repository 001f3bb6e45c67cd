#include "model/hf/safetensors_folder.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/error.h"
#include "tests/model/safetensors_text.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model {

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
  CHECK(refused().find("cannot open ") == 0);
  CHECK(refused().find("2.safetensors: No such file") != std::string::npos);
  write_text(folder.path() / "2.safetensors", with_header("{}", 0));
  CHECK(refused().find("says that 2.safetensors holds tensor b") != std::string::npos);
  write_text(folder.path() / "2.safetensors", one);
  CHECK(refused().find("tensor a is in ") == 0);
  write_text(index, "[]");
  CHECK(refused().find("has no readable weight_map") != std::string::npos);
}

TEST_CASE("weights are read through links that lead out of the folder, whole or in shards") {
  const TempFolder elsewhere, folder, sharded;
  const std::string header = "{" + entry("a", "[2]", 0, 8) + "}";
  const auto blob = elsewhere.write("blob", with_header(header, 0) + "12345678");
  const auto link = elsewhere / "link";
  std::filesystem::create_symlink(blob, link);
  std::filesystem::create_symlink(link, folder / "model.safetensors");
  std::filesystem::create_symlink(
      elsewhere.write("index", R"({"weight_map": {"a": "1.safetensors"}})"),
      sharded / "model.safetensors.index.json");
  std::filesystem::create_symlink(blob, sharded / "1.safetensors");
  for (const TempFolder* const of : {&folder, &sharded}) {
    CHECK(has_weights(of->path()));
    const SafetensorsFolder files(of->path());
    const auto& [file, tensor] = files.entries().at("a");
    const auto bytes = file->bytes(*tensor);
    CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == "12345678");
  }
}

TEST_CASE("weights in another format are not taken for none") {
  const TempFolder folder;
  CHECK_FALSE(has_weights(folder.path()));
  write_text(folder.path() / "pytorch_model.bin", "x");
  CHECK_THROWS_AS(has_weights(folder.path()), Error);
}

TEST_CASE("an index that names files elsewhere, or anything but files, is refused by the tensor") {
  const TempFolder folder;
  const auto path = folder.path() / "model.safetensors.index.json";
  const auto refused = [&](const std::string& file) {
    write_text(path, "{\"weight_map\": {\"a\": " + file + "}}");
    return message_of<Error>([&] { SafetensorsFolder files(folder.path()); });
  };
  for (const char* const file :
       {R"("../x")", R"("/etc/passwd")", R"("..")", R"("")", R"("a\u0000")"}) {
    CHECK(refused(file).find("weight_map.a is ") != std::string::npos);
    CHECK(refused(file).find("expected the name of a file in this folder") != std::string::npos);
  }
  CHECK(refused("5").find("weight_map.a is 5, expected a text") != std::string::npos);
  write_text(path, std::string(1'000'000, '['));
  CHECK(message_of<Error>([&] {
          SafetensorsFolder files(folder.path());
        }).find("index.json:1:129: nested deeper") != std::string::npos);
}

}  // namespace zeroth::model
