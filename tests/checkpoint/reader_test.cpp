#include "checkpoint/reader.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/read_whole.h"
#include "tests/checkpoint/stored.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::reader_test {
namespace {

std::vector<float> read(CheckpointReader& reader, const TensorChunk& wanted) {
  std::vector<float> values(static_cast<size_t>(wanted.elements()), -1);
  reader.read(wanted.tensor, wanted.state, wanted.slice, wanted.range,
              std::as_writable_bytes(std::span(values)));
  return values;
}

std::string refused(CheckpointReader& reader, const TensorChunk& wanted) {
  return message_of<Error>([&] { (void)read(reader, wanted); });
}

// Counts what is read of the disk below.
class CountingDisk : public FaultyFileSystem {
 public:
  std::unique_ptr<RandomAccessFile> open(const std::string& name) override {
    return std::make_unique<File>(FaultyFileSystem::open(name), bytes_read);
  }
  int64_t bytes_read = 0;

 private:
  class File : public RandomAccessFile {
   public:
    File(std::unique_ptr<RandomAccessFile> file, int64_t& count)
        : file_(std::move(file)), count_(count) {}
    int64_t size() const override { return file_->size(); }
    size_t read(std::span<std::byte> bytes, int64_t offset) override {
      const size_t done = file_->read(bytes, offset);
      count_ += static_cast<int64_t>(done);
      return done;
    }

   private:
    std::unique_ptr<RandomAccessFile> file_;
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
      const auto file_system = std::make_shared<FaultyFileSystem>();
      std::vector<std::vector<TensorChunk>> ranks;
      for (const TensorChunk& chunk : split("w", "master", {all}, stored)) ranks.push_back({chunk});
      write_checkpoint(*file_system, "c", ranks);
      CheckpointReader reader(file_system, "c");
      for (const TensorChunk& chunk : split("w", "master", {all}, wanted)) {
        CHECK(read(reader, chunk) == values_of(chunk));
      }
      CHECK(reader.unused().empty());
    }
  }
}

TEST_CASE("boxes of any tiling are read by boxes of any other") {
  // 2 x 2 x 1 boxes, each in two ranges, wanted as random boxes and ranges.
  const Shape shape{6, 10, 3};
  std::vector<std::vector<TensorChunk>> ranks(3);
  size_t next = 0;
  for (const auto& [top, bottom] : {std::pair<int64_t, int64_t>{0, 2}, {2, 6}}) {
    for (const auto& [left, right] : {std::pair<int64_t, int64_t>{0, 7}, {7, 10}}) {
      const auto box = TensorSlice::between(shape, {top, left, 0}, {bottom, right, 3});
      const int64_t half = box.elements() / 3;
      ranks[next++ % 3].push_back({"w", "exp_avg", "F32", box, {0, half}});
      ranks[next++ % 3].push_back({"w", "exp_avg", "F32", box, {half, box.elements()}});
    }
  }
  const auto file_system = std::make_shared<FaultyFileSystem>();
  write_checkpoint(*file_system, "c", ranks);
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    CheckpointReader reader(file_system, "c");
    TensorChunk wanted = TensorChunk::full("w", "exp_avg", "F32", shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      wanted.slice.offsets[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[i]));
      const auto rest = static_cast<uint64_t>(shape[i] - wanted.slice.offsets[i]);
      wanted.slice.sizes[i] = 1 + static_cast<int64_t>(random() % rest);
    }
    const auto all = static_cast<uint64_t>(wanted.slice.elements());
    wanted.range.begin = static_cast<int64_t>(random() % all);
    wanted.range.end =
        wanted.range.begin +
        static_cast<int64_t>(random() % (all - static_cast<uint64_t>(wanted.range.begin)) + 1);
    CHECK(read(reader, wanted) == values_of(wanted));
    CHECK(read(reader, wanted) == values_of(wanted));  // once checked, by another way
  }
}

TEST_CASE("a state is found with its dtype and shape, and read whole") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  write_checkpoint(*file_system, "c",
                   {{TensorChunk::full("w", "master", "F32", {2, 3})},
                    {TensorChunk::full("w", "exp_avg", "F32", {2, 3}),
                     TensorChunk::full("model", "step", "F32", {})}});
  CheckpointReader reader(file_system, "c");
  CHECK(reader.path() == "/fake/c");
  CHECK(reader.manifest().step == 8);
  REQUIRE(reader.find("w", "master") != nullptr);
  CHECK(reader.find("w", "master")->dtype == "F32");
  CHECK(reader.find("w", "master")->shape == Shape{2, 3});
  CHECK(reader.find("w", "exp_avg_sq") == nullptr);
  CHECK(reader.states().size() == 3);
  const auto bytes = read_whole(reader, "w", "master");
  const auto values = values_of(TensorChunk::full("w", "master", "F32", {2, 3}));
  CHECK(std::memcmp(bytes.data(), values.data(), bytes.size()) == 0);
  CHECK(reader.unused() ==
        std::vector<std::string>{"exp_avg of w [0:2,0:3](0:6) in zeroth/pieces-00001.safetensors",
                                 "step of model [](0:1) in zeroth/pieces-00001.safetensors"});
}

TEST_CASE("a piece is read whole once, and later only what is wanted of it") {
  const auto file_system = std::make_shared<CountingDisk>();
  const int64_t all = 3'000'000;  // several blocks of a file that is read ahead
  const Manifest manifest =
      write_checkpoint(*file_system, "c", {split("w", "master", {all}, {all})});
  CheckpointReader reader(file_system, "c");
  file_system->bytes_read = 0;
  TensorChunk wanted = TensorChunk::full("w", "master", "F32", {all});
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {5, 15}, {1'048'570, 1'048'580}, {all - 4, all}, {20, 20}}) {
    wanted.range = {begin, end};
    CHECK(read(reader, wanted) == values_of(wanted));
  }
  CHECK(file_system->bytes_read == manifest.files[0].size + 40 + 16);
}

TEST_CASE("what is not stored, or not like this, is refused by name") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  write_checkpoint(*file_system, "c", {{TensorChunk::full("w", "master", "F32", {2, 3})}});
  CheckpointReader reader(file_system, "c");
  CHECK(refused(reader, TensorChunk::full("v", "master", "F32", {2, 3})) ==
        "/fake/c: master of v [0:2,0:3](0:6) is not stored");
  CHECK(refused(reader, TensorChunk::full("w", "exp_avg", "F32", {2, 3})) ==
        "/fake/c: exp_avg of w [0:2,0:3](0:6) is not stored");
  CHECK(refused(reader, TensorChunk::full("w", "master", "F32", {2, 4})) ==
        "/fake/c: master of w [0:2,0:4](0:8) cannot be read: its slice 0:4 is invalid for "
        "dimension 1 of size 3");
  CHECK(refused(reader, TensorChunk::full("w", "master", "F32", {6})) ==
        "/fake/c: master of w [0:6](0:6) cannot be read: its slice has 1 and 1 dimensions, the "
        "tensor 2");
}

TEST_CASE("a byte that changed is noticed by the piece it is in, and by no other") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const Manifest manifest =
      write_checkpoint(*file_system, "c", {split("w", "master", {100}, {60, 40})});
  const StoredChunk& second = manifest.files[0].chunks[1];
  file_system->bytes_of(
      "c/zeroth/pieces-00000.safetensors")[static_cast<size_t>(second.offset) + 17] ^= 1;
  CheckpointReader reader(file_system, "c");
  TensorChunk wanted = second.chunk;
  wanted.range = {60, 61};  // another element of the piece
  const std::string said = message_of<CorruptCheckpoint>([&] { (void)read(reader, wanted); });
  CHECK(said.starts_with("/fake/c/zeroth/pieces-00000.safetensors is damaged: crc32c "));
  CHECK(said.ends_with(": master of w [0:100](60:100) in zeroth/pieces-00000.safetensors"));
  wanted.range = {0, 60};
  CHECK(read(reader, wanted) == values_of(wanted));
}

TEST_CASE("a file that shrinks or goes while it is read is damage with file and tensor") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  write_checkpoint(*file_system, "c", {split("w", "master", {100}, {100})});
  const std::string file = "c/zeroth/pieces-00000.safetensors";
  {
    CheckpointReader reader(file_system, "c");
    file_system->bytes_of(file).resize(200);
    const std::string said = message_of<CorruptCheckpoint>(
        [&] { (void)read(reader, TensorChunk::full("w", "master", "F32", {100})); });
    CHECK(said.find("pieces-00000.safetensors is cut short: ") != std::string::npos);
    CHECK(said.ends_with("it holds master of w [0:100](0:100) in zeroth/pieces-00000.safetensors"));
  }
  CHECK_THROWS_AS(CheckpointReader(file_system, "c"), CorruptCheckpoint);
}

TEST_CASE("a manifest with a hole or an element in two pieces is damage") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const auto wanted = TensorChunk::full("w", "master", "F32", {10});
  write_checkpoint(*file_system, "hole", {split("w", "master", {10}, {4, 3})});
  CheckpointReader hole(file_system, "hole");
  CHECK(message_of<CorruptCheckpoint>([&] { (void)read(hole, wanted); }) ==
        "/fake/hole: master of w [0:10](0:10): element 7 is in no piece");
  auto chunks = split("w", "master", {10}, {4, 6});
  chunks[1].range.begin = 3;
  write_checkpoint(*file_system, "twice", {chunks});
  CheckpointReader twice(file_system, "twice");
  CHECK(message_of<CorruptCheckpoint>([&] { (void)read(twice, wanted); }) ==
        "/fake/twice: master of w [0:10](0:10): an element is in two pieces");
  auto other = split("w", "master", {10}, {4, 6});
  other[1].dtype = "I32";
  write_checkpoint(*file_system, "dtype", {other});
  CHECK(message_of<CorruptCheckpoint>([&] { CheckpointReader(file_system, "dtype"); }) ==
        "/fake/dtype/zeroth/manifest.json: master of w is F32 [10] in one piece and I32 [10] in "
        "another");
}

TEST_CASE("a folder is opened by its path") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  write_checkpoint(*file_system, "step-8", {split("w", "master", {10}, {4, 6})});
  CheckpointReader reader = CheckpointReader::open(directory / "step-8");
  const auto wanted = TensorChunk::full("w", "master", "F32", {10});
  CHECK(read(reader, wanted) == values_of(wanted));
  CHECK(message_of<CorruptCheckpoint>([&] {
          (void)CheckpointReader::open(directory / "step-9");
        }) == (directory / "step-9").string() + ": there is no such folder");
  CHECK(message_of<CorruptCheckpoint>([&] { (void)CheckpointReader::open(directory.path()); }) ==
        directory.path().string() +
            " is not a complete checkpoint: it has no zeroth/manifest.json");
}

}  // namespace zeroth::checkpoint::reader_test
