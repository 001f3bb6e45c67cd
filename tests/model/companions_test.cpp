#include "model/hf/companions.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/temp_folder.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

fs::path made(const fs::path& folder) {
  fs::create_directories(folder);
  return folder;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    names.push_back(entry.path().lexically_relative(folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("tokenizer files are copied with what they hold, also from links within the folder") {
  const TempFolder folder;
  const fs::path source = made(folder / "model"), output = made(folder / "out");
  write_text(source / "tokenizer.json", "{}");
  write_text(source / "weights.bin", "w");
  fs::create_symlink("tokenizer.json", source / "tokenizer.model");
  write_text(made(source / "tokenizer/deep") / "vocab", "v");
  fs::create_directory_symlink(source, folder / "link");
  copy_companions(folder / "link", output);
  CHECK(names_in(output) == std::vector<std::string>{"tokenizer", "tokenizer.json",
                                                     "tokenizer.model", "tokenizer/deep",
                                                     "tokenizer/deep/vocab"});
  CHECK(read_text(output / "tokenizer.model") == "{}");
  CHECK_FALSE(fs::is_symlink(output / "tokenizer.model"));
  CHECK(companions_left_out(source).empty());
}

TEST_CASE("links that lead out of a model's folder are not copied, and named") {
  const TempFolder folder;
  const fs::path source = made(folder / "model"), output = made(folder / "out");
  const fs::path secret = folder.write("id_rsa", "secret");
  write_text(made(folder / "model2") / "tokenizer.json", "of a folder with a longer name");
  fs::create_symlink("../id_rsa", source / "tokenizer.model");
  fs::create_symlink(folder / "model2/tokenizer.json", source / "vocab.json");
  fs::create_symlink(secret, made(source / "tokenizer") / "deep");
  fs::create_directory_symlink(folder / "model2", source / "chat_templates");
  fs::create_directory_symlink(".", source / "tokenizer.loop");
  fs::create_symlink("nothing", source / "merges.txt");
  REQUIRE(::mkfifo((source / "added_tokens.json").c_str(), 0600) == 0);
  copy_companions(source, output);
  CHECK(names_in(output).empty());
  const auto said = companions_left_out(source);
  REQUIRE(said.size() == 7);
  const auto told = [&](const std::string& name, const std::string& reason) {
    return std::count(said.begin(), said.end(),
                      (source / name).string() + " is not copied to the output: " + reason);
  };
  const std::string outside = ", outside of the model's folder";
  CHECK(told("tokenizer.model", "it leads to " + secret.string() + outside) == 1);
  CHECK(told("tokenizer/deep", "it leads to " + secret.string() + outside) == 1);
  CHECK(told("vocab.json", "it leads to " + (folder / "model2/tokenizer.json").string() + outside));
  CHECK(told("chat_templates", "it leads to " + (folder / "model2").string() + outside) == 1);
  CHECK(told("merges.txt", "No such file or directory") == 1);
  CHECK(told("added_tokens.json", "it is no file") == 1);
}

TEST_CASE("in Hugging Face's cache the blobs of the same model belong to it") {
  const TempFolder folder;
  const fs::path hub = folder / "hub";
  const fs::path source = made(hub / "models--org--name/snapshots/0123"),
                 output = made(folder / "out");
  write_text(made(hub / "models--org--name/blobs") / "aa", "tokenizer");
  write_text(made(hub / "models--other/blobs") / "bb", "theirs");
  fs::create_symlink("../../blobs/aa", source / "tokenizer.json");
  fs::create_symlink("../../../models--other/blobs/bb", source / "vocab.json");
  copy_companions(source, output);
  CHECK(names_in(output) == std::vector<std::string>{"tokenizer.json"});
  CHECK(read_text(output / "tokenizer.json") == "tokenizer");
  CHECK(companions_left_out(source).size() == 1);
  // A repository that looks like a cache and whose blobs lead elsewhere.
  const fs::path fake = made(folder / "models--fake/snapshots/1");
  fs::create_directory_symlink(made(folder / "home"), folder / "models--fake/blobs");
  write_text(folder / "home/id_rsa", "secret");
  fs::create_symlink("../../blobs/id_rsa", fake / "tokenizer.json");
  CHECK(companions_left_out(fake).size() == 1);
}

}  // namespace zeroth::model
