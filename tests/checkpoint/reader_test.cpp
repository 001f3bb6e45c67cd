#include "checkpoint/reader.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "checkpoint/real_disk.h"
#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {
namespace {

std::vector<float> read(Reader& reader, const Piece& wanted) {
  std::vector<float> values(static_cast<size_t>(wanted.elements()), -1);
  reader.read(wanted.tensor, wanted.state, wanted.box, wanted.range,
              std::as_writable_bytes(std::span(values)));
  return values;
}

std::string refused(Reader& reader, const Piece& wanted) {
  return message_of<Error>([&] { (void)read(reader, wanted); });
}

// Counts what is read of the disk below.
class CountingDisk : public FakeDisk {
 public:
  std::unique_ptr<OldFile> open(const std::string& name) override {
    return std::make_unique<File>(FakeDisk::open(name), bytes_read);
  }
  int64_t bytes_read = 0;

 private:
  class File : public OldFile {
   public:
    File(std::unique_ptr<OldFile> file, int64_t& count) : file_(std::move(file)), count_(count) {}
    int64_t size() const override { return file_->size(); }
    size_t read(std::span<std::byte> bytes, int64_t offset) override {
      const size_t done = file_->read(bytes, offset);
      count_ += static_cast<int64_t>(done);
      return done;
    }

   private:
    std::unique_ptr<OldFile> file_;
    int64_t& count_;
  };
};

}  // namespace

TEST_CASE("ragged splits are read in any other split, exactly") {
  using Counts = std::vector<int64_t>;
  const std::vector<std::pair<Counts, Counts>> cases = {
      {{3, 3, 3, 3, 3, 3, 3, 3}, {1, 1, 1, 1, 1, 1, 2, 16}},
      {{1, 5, 7, 3, 6, 2, 5, 4}, {14, 3, 6, 3, 1, 1, 2, 3}},
      {{5, 5, 5, 5, 5, 5, 0, 0}, {5, 0, 5, 0, 5, 5, 3, 7}},
      {{15, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 3, 3, 3, 3, 3}}};
  for (const auto& [from, to] : cases) {
    for (const bool turned : {false, true}) {
      const Counts& stored = turned ? to : from;
      const Counts& wanted = turned ? from : to;
      const int64_t all = std::accumulate(stored.begin(), stored.end(), int64_t{0});
      const auto disk = std::make_shared<FakeDisk>();
      std::vector<std::vector<Piece>> ranks;
      for (const Piece& piece : split("w", "master", {all}, stored)) ranks.push_back({piece});
      write_checkpoint(*disk, "c", ranks);
      Reader reader(disk, "c");
      for (const Piece& piece : split("w", "master", {all}, wanted)) {
        CHECK(read(reader, piece) == values_of(piece));
      }
      CHECK(reader.unused().empty());
    }
  }
}

TEST_CASE("boxes of any tiling are read by boxes of any other") {
  // 2 x 2 x 1 boxes, each in two ranges, wanted as random boxes and ranges.
  const Shape shape{6, 10, 3};
  std::vector<std::vector<Piece>> ranks(3);
  size_t next = 0;
  for (const auto& [top, bottom] : {std::pair<int64_t, int64_t>{0, 2}, {2, 6}}) {
    for (const auto& [left, right] : {std::pair<int64_t, int64_t>{0, 7}, {7, 10}}) {
      const Box box{{top, left, 0}, {bottom, right, 3}};
      const int64_t half = box.elements() / 3;
      ranks[next++ % 3].push_back({"w", "exp_avg", "F32", shape, box, {0, half}});
      ranks[next++ % 3].push_back({"w", "exp_avg", "F32", shape, box, {half, box.elements()}});
    }
  }
  const auto disk = std::make_shared<FakeDisk>();
  write_checkpoint(*disk, "c", ranks);
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    Reader reader(disk, "c");
    Piece wanted = Piece::whole("w", "exp_avg", "F32", shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      wanted.box.begin[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[i]));
      const auto rest = static_cast<uint64_t>(shape[i] - wanted.box.begin[i]);
      wanted.box.end[i] = wanted.box.begin[i] + 1 + static_cast<int64_t>(random() % rest);
    }
    const auto all = static_cast<uint64_t>(wanted.box.elements());
    wanted.range.begin = static_cast<int64_t>(random() % all);
    wanted.range.end =
        wanted.range.begin +
        static_cast<int64_t>(random() % (all - static_cast<uint64_t>(wanted.range.begin)) + 1);
    CHECK(read(reader, wanted) == values_of(wanted));
    CHECK(read(reader, wanted) == values_of(wanted));  // once checked, by another way
  }
}

TEST_CASE("a state is found with its dtype and shape, and read whole") {
  const auto disk = std::make_shared<FakeDisk>();
  write_checkpoint(
      *disk, "c",
      {{Piece::whole("w", "master", "F32", {2, 3})},
       {Piece::whole("w", "exp_avg", "F32", {2, 3}), Piece::whole("model", "step", "F32", {})}});
  Reader reader(disk, "c");
  CHECK(reader.path() == "/fake/c");
  CHECK(reader.manifest().step == 8);
  REQUIRE(reader.find("w", "master") != nullptr);
  CHECK(reader.find("w", "master")->dtype == "F32");
  CHECK(reader.find("w", "master")->shape == Shape{2, 3});
  CHECK(reader.find("w", "exp_avg_sq") == nullptr);
  CHECK(reader.states().size() == 3);
  const auto bytes = reader.read_whole("w", "master");
  const auto values = values_of(Piece::whole("w", "master", "F32", {2, 3}));
  CHECK(std::memcmp(bytes.data(), values.data(), bytes.size()) == 0);
  CHECK(reader.unused() ==
        std::vector<std::string>{"exp_avg of w [0:2,0:3](0:6) in zeroth/pieces-00001.safetensors",
                                 "step of model [](0:1) in zeroth/pieces-00001.safetensors"});
}

TEST_CASE("a piece is read whole once, and later only what is wanted of it") {
  const auto disk = std::make_shared<CountingDisk>();
  const int64_t all = 3'000'000;  // several blocks of a file that is read ahead
  const Manifest manifest = write_checkpoint(*disk, "c", {split("w", "master", {all}, {all})});
  Reader reader(disk, "c");
  disk->bytes_read = 0;
  Piece wanted = Piece::whole("w", "master", "F32", {all});
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {5, 15}, {1'048'570, 1'048'580}, {all - 4, all}, {20, 20}}) {
    wanted.range = {begin, end};
    CHECK(read(reader, wanted) == values_of(wanted));
  }
  CHECK(disk->bytes_read == manifest.files[0].size + 40 + 16);
}

TEST_CASE("what is not stored, or not like this, is refused by name") {
  const auto disk = std::make_shared<FakeDisk>();
  write_checkpoint(*disk, "c", {{Piece::whole("w", "master", "F32", {2, 3})}});
  Reader reader(disk, "c");
  CHECK(refused(reader, Piece::whole("v", "master", "F32", {2, 3})) ==
        "/fake/c: master of v [0:2,0:3](0:6) is not stored");
  CHECK(refused(reader, Piece::whole("w", "exp_avg", "F32", {2, 3})) ==
        "/fake/c: exp_avg of w [0:2,0:3](0:6) is not stored");
  CHECK(refused(reader, Piece::whole("w", "master", "F32", {2, 4})) ==
        "/fake/c: master of w [0:2,0:4](0:8) cannot be read: its box has 0:4 of dimension 1, which "
        "has 3");
  CHECK(
      refused(reader, Piece::whole("w", "master", "F32", {6})) ==
      "/fake/c: master of w [0:6](0:6) cannot be read: its box has 1 and 1 dimensions, the tensor "
      "2");
}

TEST_CASE("a byte that changed is noticed by the piece it is in, and by no other") {
  const auto disk = std::make_shared<FakeDisk>();
  const Manifest manifest = write_checkpoint(*disk, "c", {split("w", "master", {100}, {60, 40})});
  const StoredPiece& second = manifest.files[0].pieces[1];
  disk->bytes_of("c/zeroth/pieces-00000.safetensors")[static_cast<size_t>(second.offset) + 17] ^= 1;
  Reader reader(disk, "c");
  Piece wanted = second.piece;
  wanted.range = {60, 61};  // another element of the piece
  const std::string said = message_of<Damaged>([&] { (void)read(reader, wanted); });
  CHECK(said.starts_with("/fake/c/zeroth/pieces-00000.safetensors is damaged: crc32c "));
  CHECK(said.ends_with(": master of w [0:100](60:100) in zeroth/pieces-00000.safetensors"));
  wanted.range = {0, 60};
  CHECK(read(reader, wanted) == values_of(wanted));
}

TEST_CASE("a file that shrinks or goes while it is read is damage with file and tensor") {
  const auto disk = std::make_shared<FakeDisk>();
  write_checkpoint(*disk, "c", {split("w", "master", {100}, {100})});
  const std::string file = "c/zeroth/pieces-00000.safetensors";
  {
    Reader reader(disk, "c");
    disk->bytes_of(file).resize(200);
    const std::string said =
        message_of<Damaged>([&] { (void)read(reader, Piece::whole("w", "master", "F32", {100})); });
    CHECK(said.find("pieces-00000.safetensors is cut short: ") != std::string::npos);
    CHECK(said.ends_with("it holds master of w [0:100](0:100) in zeroth/pieces-00000.safetensors"));
  }
  CHECK_THROWS_AS(Reader(disk, "c"), Damaged);
}

TEST_CASE("a manifest with a hole or an element in two pieces is damage") {
  const auto disk = std::make_shared<FakeDisk>();
  const auto wanted = Piece::whole("w", "master", "F32", {10});
  write_checkpoint(*disk, "hole", {split("w", "master", {10}, {4, 3})});
  Reader hole(disk, "hole");
  CHECK(message_of<Damaged>([&] { (void)read(hole, wanted); }) ==
        "/fake/hole: master of w [0:10](0:10): element 7 stands in no piece");
  auto pieces = split("w", "master", {10}, {4, 6});
  pieces[1].range.begin = 3;
  write_checkpoint(*disk, "twice", {pieces});
  Reader twice(disk, "twice");
  CHECK(message_of<Damaged>([&] { (void)read(twice, wanted); }) ==
        "/fake/twice: master of w [0:10](0:10): an element stands in two pieces");
  auto other = split("w", "master", {10}, {4, 6});
  other[1].dtype = "I32";
  write_checkpoint(*disk, "dtype", {other});
  CHECK(message_of<Damaged>([&] { Reader(disk, "dtype"); }) ==
        "/fake/dtype/zeroth/manifest.json: master of w is F32 [10] in one piece and I32 [10] in "
        "another");
}

TEST_CASE("a folder is opened by its path") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  write_checkpoint(*disk, "step-8", {split("w", "master", {10}, {4, 6})});
  Reader reader = Reader::open(folder / "step-8");
  const auto wanted = Piece::whole("w", "master", "F32", {10});
  CHECK(read(reader, wanted) == values_of(wanted));
  CHECK(message_of<Damaged>([&] { (void)Reader::open(folder / "step-9"); }) ==
        (folder / "step-9").string() + ": there is no such folder");
  CHECK(message_of<Damaged>([&] { (void)Reader::open(folder.path()); }) ==
        folder.path().string() + " is no complete checkpoint: it has no zeroth/manifest.json");
}

}  // namespace zeroth::checkpoint
