#include "model/hf/auxiliary_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/temp_folder.h"

namespace zeroth::model::auxiliary_files_test {
namespace {

namespace fs = std::filesystem;

fs::path made(const fs::path& directory) {
  fs::create_directories(directory);
  return directory;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    names.push_back(entry.path().lexically_relative(directory).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("tokenizer files are copied with what they hold, also from links within the folder") {
  const TempFolder directory;
  const fs::path source = made(directory / "model"), output = made(directory / "out");
  write_text(source / "tokenizer.json", "{}");
  write_text(source / "weights.bin", "w");
  fs::create_symlink("tokenizer.json", source / "tokenizer.model");
  write_text(made(source / "tokenizer/deep") / "vocab", "v");
  fs::create_directory_symlink(source, directory / "link");
  copy_auxiliary_files(directory / "link", output);
  CHECK(names_in(output) == std::vector<std::string>{"tokenizer", "tokenizer.json",
                                                     "tokenizer.model", "tokenizer/deep",
                                                     "tokenizer/deep/vocab"});
  CHECK(read_text(output / "tokenizer.model") == "{}");
  CHECK_FALSE(fs::is_symlink(output / "tokenizer.model"));
  CHECK(skipped_auxiliary_files(source).empty());
}

TEST_CASE("links that lead out of a model's folder are not copied, and named") {
  const TempFolder directory;
  const fs::path source = made(directory / "model"), output = made(directory / "out");
  const fs::path secret = directory.write("id_rsa", "secret");
  write_text(made(directory / "model2") / "tokenizer.json", "of a folder with a longer name");
  fs::create_symlink("../id_rsa", source / "tokenizer.model");
  fs::create_symlink(directory / "model2/tokenizer.json", source / "vocab.json");
  fs::create_symlink(secret, made(source / "tokenizer") / "deep");
  fs::create_directory_symlink(directory / "model2", source / "chat_templates");
  fs::create_directory_symlink(".", source / "tokenizer.loop");
  fs::create_symlink("nothing", source / "merges.txt");
  REQUIRE(::mkfifo((source / "added_tokens.json").c_str(), 0600) == 0);
  copy_auxiliary_files(source, output);
  CHECK(names_in(output).empty());
  const auto said = skipped_auxiliary_files(source);
  REQUIRE(said.size() == 7);
  const auto count_skipped = [&](const std::string& name, const std::string& reason) {
    return std::count(said.begin(), said.end(),
                      (source / name).string() + " is not copied to the output: " + reason);
  };
  const std::string outside = ", outside of the model's folder";
  CHECK(count_skipped("tokenizer.model", "it links to " + secret.string() + outside) == 1);
  CHECK(count_skipped("tokenizer/deep", "it links to " + secret.string() + outside) == 1);
  CHECK(count_skipped("vocab.json",
                      "it links to " + (directory / "model2/tokenizer.json").string() + outside));
  CHECK(count_skipped("chat_templates",
                      "it links to " + (directory / "model2").string() + outside) == 1);
  CHECK(count_skipped("merges.txt", "No such file or directory") == 1);
  CHECK(count_skipped("added_tokens.json", "it is not a file") == 1);
}

TEST_CASE("in Hugging Face's cache the blobs of the same model belong to it") {
  const TempFolder directory;
  const fs::path hub = directory / "hub";
  const fs::path source = made(hub / "models--org--name/snapshots/0123"),
                 output = made(directory / "out");
  write_text(made(hub / "models--org--name/blobs") / "aa", "tokenizer");
  write_text(made(hub / "models--other/blobs") / "bb", "theirs");
  fs::create_symlink("../../blobs/aa", source / "tokenizer.json");
  fs::create_symlink("../../../models--other/blobs/bb", source / "vocab.json");
  copy_auxiliary_files(source, output);
  CHECK(names_in(output) == std::vector<std::string>{"tokenizer.json"});
  CHECK(read_text(output / "tokenizer.json") == "tokenizer");
  CHECK(skipped_auxiliary_files(source).size() == 1);
  // A repository that looks like a cache and whose blobs lead elsewhere.
  const fs::path fake = made(directory / "models--fake/snapshots/1");
  fs::create_directory_symlink(made(directory / "home"), directory / "models--fake/blobs");
  write_text(directory / "home/id_rsa", "secret");
  fs::create_symlink("../../blobs/id_rsa", fake / "tokenizer.json");
  CHECK(skipped_auxiliary_files(fake).size() == 1);
}

}  // namespace zeroth::model::auxiliary_files_test
