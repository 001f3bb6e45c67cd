#include "checkpoint/verify.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::verify_test {
namespace {

using Lines = std::vector<std::string>;

const std::string kFile = "c/zeroth/pieces-00000.safetensors";

std::shared_ptr<FaultyFileSystem> stored() {
  auto file_system = std::make_shared<FaultyFileSystem>();
  write_checkpoint(*file_system, "c", {split("w", "master", {100}, {60, 0, 40}), {}});
  return file_system;
}

}  // namespace

TEST_CASE("a checkpoint as it was written has nothing to complain of, and each byte is read") {
  const auto file_system = stored();
  const VerifyResult result = verify(*file_system, "c");
  CHECK(result.errors == Lines{});
  CHECK(result.unlisted == Lines{});
  CHECK(result.bytes == std::ssize(file_system->bytes_of(kFile)) +
                            std::ssize(file_system->bytes_of("c/zeroth/pieces-00001.safetensors")));
}

TEST_CASE("each changed byte is told, within pieces by tensor and box") {
  const auto file_system = stored();
  const std::string whole = file_system->bytes_of(kFile);
  for (size_t i = 0; i < whole.size(); i += 7) {
    file_system->bytes_of(kFile)[i] ^= 16;
    const VerifyResult result = verify(*file_system, "c");
    REQUIRE(result.errors.size() == 1);
    CHECK(result.errors[0].starts_with("/fake/" + kFile + " is damaged: "));
    const bool in_pieces = i >= whole.size() - 400;
    CHECK((result.errors[0].find("master of w [0:100](") != std::string::npos) == in_pieces);
    file_system->bytes_of(kFile) = whole;
  }
}

TEST_CASE("files that do not belong to it, and holes, are told") {
  const auto file_system = stored();
  write_text(*file_system, "c/notes.txt", "mine");
  write_checkpoint(*file_system, "hole", {split("w", "master", {100}, {60})});
  CHECK(verify(*file_system, "c").unlisted == Lines{"notes.txt"});
  CHECK(verify(*file_system, "c").errors == Lines{});
  CHECK(verify(*file_system, "hole").errors ==
        Lines{"master of w: its pieces hold 60 of 100 elements of [100]; the first missing one is "
              "60"});
  file_system->bytes_of(kFile).pop_back();
  CHECK_THROWS_AS((void)verify(*file_system, "c"), CorruptCheckpoint);
}

}  // namespace zeroth::checkpoint::verify_test
