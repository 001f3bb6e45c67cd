#include "checkpoint/verify.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {
namespace {

using Lines = std::vector<std::string>;

const std::string kFile = "c/zeroth/pieces-00000.safetensors";

std::shared_ptr<FakeDisk> stored() {
  auto disk = std::make_shared<FakeDisk>();
  write_checkpoint(*disk, "c", {split("w", "master", {100}, {60, 0, 40}), {}});
  return disk;
}

}  // namespace

TEST_CASE("a checkpoint as it was written has nothing to complain of, and each byte is read") {
  const auto disk = stored();
  const Verdict verdict = verify(*disk, "c");
  CHECK(verdict.complaints == Lines{});
  CHECK(verdict.unlisted == Lines{});
  CHECK(verdict.bytes == std::ssize(disk->bytes_of(kFile)) +
                             std::ssize(disk->bytes_of("c/zeroth/pieces-00001.safetensors")));
}

TEST_CASE("each changed byte is told, within pieces by tensor and box") {
  const auto disk = stored();
  const std::string whole = disk->bytes_of(kFile);
  for (size_t i = 0; i < whole.size(); i += 7) {
    disk->bytes_of(kFile)[i] ^= 16;
    const Verdict verdict = verify(*disk, "c");
    REQUIRE(verdict.complaints.size() == 1);
    CHECK(verdict.complaints[0].starts_with("/fake/" + kFile + " is damaged: "));
    const bool in_pieces = i >= whole.size() - 400;
    CHECK((verdict.complaints[0].find("master of w [0:100](") != std::string::npos) == in_pieces);
    disk->bytes_of(kFile) = whole;
  }
}

TEST_CASE("files that do not belong to it, and holes, are told") {
  const auto disk = stored();
  write_text(*disk, "c/notes.txt", "mine");
  write_checkpoint(*disk, "hole", {split("w", "master", {100}, {60})});
  CHECK(verify(*disk, "c").unlisted == Lines{"notes.txt"});
  CHECK(verify(*disk, "c").complaints == Lines{});
  CHECK(
      verify(*disk, "hole").complaints ==
      Lines{"master of w: its pieces hold 60 of 100 elements of [100]; the first that none has is "
            "60"});
  disk->bytes_of(kFile).pop_back();
  CHECK_THROWS_AS((void)verify(*disk, "c"), Damaged);
}

}  // namespace zeroth::checkpoint
